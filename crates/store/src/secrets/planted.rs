//! Planted secrets, and ordinary bodies without any.

use faultscope_model::Span;
use faultscope_model::span::Payload;
use faultscope_model::trace::ReportedSpan;
use faultscope_model::{SpanId, TraceId};
use serde_json::json;

use super::{REDACTED, Redactor};

/// Where a text stands.
#[derive(Debug, Clone, Copy)]
enum In {
    /// A log line, a message, the output of a test.
    Text,
    /// The body of a request.
    Body,
    /// A header, by its name.
    Header(&'static str),
    /// The path of a request.
    Path,
    /// A tag of a reported span, by its key.
    Tag(&'static str),
}

use In::{Body, Header, Path, Tag, Text};

const JWT: &str =
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P";

/// Each secret stands between `«` and `»`. `JWT` stands for a token.
const PLANTED: &[(In, &str)] = &[
    // Headers by name.
    (Header("Authorization"), "«Bearer abc»"),
    (Header("authorization"), "«hunter2»"),
    (Header("Proxy-Authorization"), "«Basic dXNlcjpwYXNz»"),
    (Header("Authentication"), "«hunter2»"),
    (Header("Cookie"), "«sid=1; theme=dark»"),
    (Header("Set-Cookie"), "«sid=1; Path=/»"),
    (Header("X-Api-Key"), "«k1»"),
    (Header("X-Auth"), "«hunter2»"),
    (Header("X-Auth-Token"), "«hunter2»"),
    (Header("X-Auth-Key"), "«hunter2»"),
    (Header("X-Authorization"), "«hunter2»"),
    (Header("X-Access-Key"), "«hunter2»"),
    (Header("X-Access-Token"), "«hunter2»"),
    (Header("X-Session-Id"), "«5f3b2a»"),
    (Header("X-Session-Token"), "«5f3b2a»"),
    (Header("X-Vault-Token"), "«s.abc»"),
    (Header("X-Hub-Signature"), "«sha1=7d38cdd689735b008b3c702edd92eea23791c5f6»"),
    (Header("X-Hub-Signature-256"), "«sha256=757107ea0eb2509fc211221cce984b8a37570b6d»"),
    (Header("Stripe-Signature"), "«t=1492774577,v1=5257a869e7ecebeda32affa62cdca3fa»"),
    (Header("X-Slack-Signature"), "«v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27»"),
    (Header("X-Amz-Security-Token"), "«FQoGZXIvYXdzE»"),
    (Header("X-Goog-Api-Key"), "«hunter2»"),
    (Header("Ocp-Apim-Subscription-Key"), "«hunter2»"),
    (Header("x-functions-key"), "«hunter2»"),
    (Header("X-CSRF-Token"), "«hunter2»"),
    (Header("X-XSRF-TOKEN"), "«hunter2»"),
    (Header("PRIVATE-TOKEN"), "«hunter2»"),
    (Header("X-Client-Secret"), "«hunter2»"),
    (Header("X-Password"), "«hunter2»"),
    (Header("X-User-Password2"), "«hunter2»"),
    (Header("X-OTP"), "«481516»"),
    (Header("X-Shopify-Hmac-Sha256"), "«XWmrwMey6OsLMeiZKwP4FppHH3cmAiiJJAweH5Jo4bM=»"),
    (Header("X-Bearer"), "«hunter2»"),
    (Header("X-Jwt-Assertion"), "«hunter2»"),
    (Header("X-Amz-Server-Side-Encryption-Customer-Key"), "«hunter2»"),
    (Header("Location"), "https://«u:pw»@order/x?a=1"),
    (Header("Location"), "/callback?a=1&code=«SplxlOBeZQQYbYS6WxSbIA»&state=xyz"),
    (Header("Referer"), "https://shop/reset?token=«hunter2»&lang=de"),
    (Header("X-Forwarded"), "for=1.2.3.4; auth=Bearer «abc.def-123»"),
    (Header("X-Debug"), "JWT"),
    // Paths.
    (Path, "/pay?token=«hunter2»&page=2"),
    (Path, "/pay?page=2&access%5Ftoken=«hunter2»"),
    (Path, "/cb?code=«SplxlOBeZQQYbYS6WxSbIA»&state=af0ifjsldkj"),
    (Path, "/maps?key=«AIzaSyA1234567890abcdefghijklmnopqrstuvw»&q=x"),
    (Path, "/geo?key=«0123456789abcdef0123456789abcdef»&q=x"),
    (
        Path,
        "/b/o?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=«fe5f80f77d5fa3beca038a248ff027d0445342fe»&X-Amz-Date=1",
    ),
    (
        Path,
        "/b/o?X-Amz-Credential=«AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request»&X-Amz-Expires=86400",
    ),
    (Path, "/b/o?Expires=1&Signature=«vjbyPxybdZaNmGa%2ByT272YEAiv4%3D»&x=1"),
    (Path, "/c/blob?sv=2020&sr=b&sig=«Z%2FRHIX5Xcg0Mq2rqI3OlWTjEg2tYkboXr1P9ZUXDtkk%3D»&se=1"),
    (Path, "/b/o?X-Goog-Signature=«247a2aa45f169edf4d187d54e7cc46e4731b1e6273242c4f»&x=1"),
    (Path, "/login?user=ann&password2=«hunter2»"),
    (Path, "/verify?otp=«481516»&user=7"),
    (Path, "/token?client_assertion=«abc.def»&x=1"),
    (Path, "/x#id_token=«hunter2»&state=1"),
    (Path, "/x?sessionid=«hunter2»"),
    (Path, "/x/JWT/y"),
    (Path, "/x?newPassword=«hunter2»&passwordHash=«abc123»"),
    // JSON bodies.
    (Body, r#"{"user":"ann","password":"«hunter2»","n":1}"#),
    (Body, r#"{"password2":"«hunter2»"}"#),
    (Body, r#"{"connectionString":"«Server=db;User Id=sa;Pwd=hunter2»","n":1}"#),
    (Body, r#"{"mnemonic":"«legal winner thank year wave sausage worth useful legal winner thank yellow»"}"#),
    (Body, r#"{"pinCode":"«4711»","name":"ann"}"#),
    (Body, r#"{"pinCode":«4711»}"#),
    (Body, r#"{"card_pin":"«471199»"}"#),
    (Body, r#"{"kmsKey":"«SplxlOBeZQQYbYS6WxSbIA8x»"}"#),
    (Body, r#"{"pat":"«SplxlOBeZQQYbYS6WxSbIA8x»"}"#),
    (Body, r#"{"walletSeed":"«hunter2»"}"#),
    (Body, r#"{"sentryDsn":"«https://0a1b2c3d@sentry.example/7»"}"#),
    (Tag("azure.pat"), "«SplxlOBeZQQYbYS6WxSbIA8x»"),
    (Tag("db.connection_string"), "«host=db user=ann password=hunter2»"),
    (Body, r#"{"newPassword":"«hunter2»","user":"ann"}"#),
    (Body, r#"{"oldPassword":"«hunter2»","confirm_password":"«hunter3»"}"#),
    (Body, r#"{"passwordHash":"«5f4dcc3b5aa765d61d8327deb882cf99»"}"#),
    (Body, r#"{"secrets":«["a1"]»,"x":1}"#),
    (Body, r#"{"client_secret":"«hunter2»"}"#),
    (Body, r#"{"clientSecret":"«hunter2»","id":1}"#),
    (Body, r#"{"access_key_id":"«AKx»","region":"eu"}"#),
    (Body, r#"{"secretAccessKey":"«hunter2»"}"#),
    (Body, r#"{"SecretKey":"«hunter2»"}"#),
    (Body, r#"{"apiKey":"«hunter2»"}"#),
    (Body, r#"{"api-key":"«hunter2»"}"#),
    (Body, r#"{"APIKEY":"«hunter2»"}"#),
    (Body, r#"{"access_token":"«hunter2»","token_type":"Bearer","expires_in":3600}"#),
    (Body, r#"{"refreshToken":"«hunter2»"}"#),
    (Body, r#"{"id_token":"«hunter2»"}"#),
    (Body, r#"{"otp":"«481516»","phone":"+49"}"#),
    (Body, r#"{"otp":«481516»}"#),
    (Body, r#"{"totpCode":"«123456»"}"#),
    (Body, r#"{"mfa_code":"«123456»"}"#),
    (Body, r#"{"verificationCode":"«A1B2C3»"}"#),
    (Body, r#"{"code":"«SplxlOBeZQQYbYS6WxSbIA»","state":"x"}"#),
    (Body, r#"{"key":"«Xk9mQ2vL7tR4wZ8nB3cF»","kind":"x"}"#),
    (Body, r#"{"session":"«aB3dE5fG7hJ9kL1mN2pQ»"}"#),
    (Body, r#"{"sessionId":"«hunter2»"}"#),
    (Body, r#"{"jwt":"«hunter2»"}"#),
    (Body, r#"{"auth":"«hunter2»"}"#),
    (Body, r#"{"signature":"«hunter2»"}"#),
    (Body, r#"{"hmac":"«XWmrwMey6OsLMeiZKwP4FppHH3cmAiiJJAweH5Jo4bM=»"}"#),
    (Body, r#"{"symmetricKey":"«hunter2»"}"#),
    (Body, r#"{"STRIPE_KEY":"«hunter2»"}"#),
    (Body, r#"{"oauth_verifier":"«hunter2»"}"#),
    (Body, r#"{"securityAnswer":"«Fido»","securityQuestion":"pet?"}"#),
    (Body, r#"{"seed_phrase":"«correct horse battery»"}"#),
    (Body, r#"{"cardNumber":"«4111111111111111»","cvv":«123»}"#),
    (Body, r#"{"ssn":"«078-05-1120»"}"#),
    (Body, r#"{"client_assertion":"«abc»","client_assertion_type":"urn:x"}"#),
    (Body, r#"{"SAMLResponse":"«PHNhbWxwOlJlc3»"}"#),
    (Body, r#"{"code_verifier":"«abc»"}"#),
    (Body, r#"{"private_key":"«hunter2»","public_key":"x"}"#),
    (Body, r#"{"passphrase":"«correct horse battery»"}"#),
    (Body, r#"{"db":{"pwd":"«hunter2»","host":"h"}}"#),
    (Body, r#"{"credentials":«{"user":"a","x":"b"}»,"n":1}"#),
    (Body, r#"{"tokens":«["abc","def"]»,"n":1}"#),
    (Body, r#"{"a":[{"token":«17»}]}"#),
    (Body, r#"{"url":"postgres://«app:hunter2»@db/shop"}"#),
    (Body, r#"{"message":"login failed, password=«hunter2» for ann"}"#),
    (Body, r#"{"payload":"{\"password\":\"«hunter2»\",\"user\":\"ann\"}"}"#),
    (Body, r#"{"payload":"{\"a\":\"{\\\"token\\\":\\\"«hunter2»\\\"}\"}"}"#),
    (Body, r#"{"header":"Authorization: «Bearer abc.def-1234»"}"#),
    (Body, r#"[{"name":"DB_PASSWORD","value":"«hunter2»"},{"name":"A","value":"1"}]"#),
    (Body, r#"{"headers":[{"name":"Authorization","value":"«Bearer abc»"}]}"#),
    (Body, r#"{"headers":[["authorization","«Bearer abcd1»"],["accept","*/*"]]}"#),
    (Body, r#"{"command":["mysql","--password","«hunter2»","shop"]}"#),
    (Body, r#"{"command":["mysql","-u","root","-p«hunter2»","shop"]}"#),
    (Body, "\u{feff}{\"password\":\"«hunter2»\"}"),
    (Body, "{\"password\":\n  \"«hunter2»\"}"),
    (Body, r#"{"token":"JWT"}"#),
    (Body, r#"{"note":"JWT"}"#),
    (Body, r#"{"PASSWORD":"«hunter2»"}"#),
    (Body, r#"{"user.password":"«hunter2»"}"#),
    // GraphQL.
    (Body, r#"{"query":"mutation { login(email: \"a@b\", password: \"«hunter2»\") { id } }"}"#),
    (
        Body,
        r#"{"query":"mutation($p:String!){login(password:$p){id}}","variables":{"password":"«hunter2»"}}"#,
    ),
    (Body, r#"{"variables":{"input":{"newPassword":"«hunter2»","id":7}}}"#),
    (Body, "mutation { signup(user: \"ann\", secret: \"«hunter2»\") { id } }"),
    (Body, "mutation { signup(token: \"\"\"«hunter2»\"\"\", user: \"ann\") { id } }"),
    (Body, r#"{"query":"mutation { x(token: \"\"\"«hunter2»\"\"\") { id } }"}"#),
    // Forms and multipart.
    (Body, "user=ann&password=«hunter2»&x=1"),
    (Body, "grant_type=authorization_code&code=«SplxlOBeZQQYbYS6WxSbIA»&redirect_uri=x"),
    (Body, "grant_type=password&username=a&password=«p%26w»"),
    (Body, "client_id=a&client_secret=«hunter2»"),
    (Body, "SAMLResponse=«PHNhbWxwOlJlc3BvbnNl»&RelayState=x"),
    (Body, "data%5Bpassword%5D=«hunter2»&data%5Bname%5D=ann"),
    (Body, "user[password]=«hunter2»&user[name]=ann"),
    (Body, "key=«0123456789abcdef0123456789abcdef»&a=1"),
    (
        Body,
        "--b\r\nContent-Disposition: form-data; name=\"password\"\r\n\r\n«hunter2»\r\n--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n1\r\n--b--",
    ),
    (
        Body,
        "--b\r\nContent-Disposition: form-data; name=\"api_key\"\r\nContent-Type: text/plain\r\n\r\n«hunter2»\r\n--b--",
    ),
    (Body, "--b\r\nContent-Disposition: form-data; name=newPassword\r\n\r\n«hunter2»\r\n--b--"),
    (
        Body,
        "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.env\"\r\n\r\nDB_PASSWORD=«hunter2»\r\n--b--",
    ),
    // XML and HTML.
    (Body, "<login><user>ann</user><password>«hunter2»</password></login>"),
    (Body, "<ns:Password>«hunter2»</ns:Password>"),
    (Body, "<password type=\"plain\">«hunter2»</password>"),
    (Body, "<apiKey\n  >«hunter2»</apiKey>"),
    (Body, "<meta name=\"api-key\" content=\"«hunter2»\">"),
    (Body, "<user name=\"ann\" password=\"«hunter2»\"/>"),
    (Body, "<add key=\"DbPassword\" value=\"«hunter2»\"/>"),
    (Body, "<entry key=\"password\">«hunter2»</entry>"),
    (Body, "<password><![CDATA[«hunter2»]]></password>"),
    (Body, "<wsse:Password Type=\"x#PasswordText\">«hunter2»</wsse:Password>"),
    (Body, "<input type=\"hidden\" name=\"csrf_token\" value=\"«hunter2»\">"),
    (Body, "<AccessKeyId>«AKx»</AccessKeyId><SecretAccessKey>«hunter2»</SecretAccessKey>"),
    // YAML, properties, environment.
    (Text, "password: «hunter2»"),
    (Text, "db:\n  user: app\n  password: «hunter2»\n  host: db"),
    (Text, "password: '«hunter2»'"),
    (Text, "password: \"«hunter 2»\" # for the database"),
    (Text, "token: |\n  «abc\n  def»\nnext: 1"),
    (Text, "- name: DB_PASSWORD\n  value: «hunter2»\n- name: A"),
    (Text, "spring.datasource.password=«hunter2»"),
    (Text, "export AWS_SECRET_ACCESS_KEY=«wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY»"),
    (Text, "DB_PASSWORD=«hunter2» ./start.sh"),
    (Text, "PGPASSWORD='«hunter2»' psql -h db"),
    (Text, "_auth=«aHVudGVyOmh1bnRlcg==»"),
    (Text, "//registry.npmjs.org/:_authToken=«hunter2»"),
    (Text, "secret_key_base: «hunter2»"),
    (Text, "requirepass \"«hunter2»\""),
    (Text, "stringData:\n  apiKey: «hunter2»"),
    (Text, "env.STRIPE_SECRET = «hunter2»"),
    // Command lines.
    (Text, "mysql -u root -p«hunter2» shop"),
    (Text, "mysqldump --user=root --password=«hunter2» shop"),
    (Text, "psql --password «hunter2» -h db"),
    (Text, "tool --token «hunter2» --verbose"),
    (Text, "tool --api-key=«hunter2» run"),
    (Text, "tool --client-secret '«hunter2»'"),
    (Text, "sshpass -p «hunter2» ssh ann@host"),
    (Text, "redis-cli -h cache -a «hunter2» ping"),
    (Text, "curl -u ann:«hunter2» http://shop/"),
    (Text, "curl --user ann:«hunter2» http://shop/"),
    (Text, "curl -H 'Authorization: «Bearer abc»' http://shop/"),
    (Text, "curl -H \"X-Api-Key: «hunter2»\" http://shop/"),
    (Text, "docker login -u ann -p «hunter2» registry"),
    (Text, "java -Djavax.net.ssl.keyStorePassword=«hunter2» -jar a.jar"),
    (Text, "ldapsearch -D cn=admin -w «hunter2» -b dc=x"),
    (Text, "sqlcmd -S db -U sa -P «hunter2»"),
    (Text, "argv: ['tool', '--password', '«hunter2»']"),
    // SQL.
    (Text, "CREATE USER app IDENTIFIED BY '«hunter2»'"),
    (Text, "ALTER USER 'a'@'%' IDENTIFIED WITH mysql_native_password BY '«hunter2»';"),
    (Text, "CREATE ROLE app LOGIN PASSWORD '«hunter2»'"),
    (Text, "ALTER USER app WITH ENCRYPTED PASSWORD '«hunter2»' VALID UNTIL 'infinity'"),
    (Text, "UPDATE users SET password = '«hunter2»' WHERE id = 7"),
    (Text, "SELECT id FROM users WHERE name = 'ann' AND password = '«hunter2»'"),
    (Text, "INSERT INTO users (id, name, password) VALUES (1, 'ann', '«hunter2»')"),
    (Text, "INSERT INTO users (name, password_hash) VALUES ('ann', '«abc»'), ('bob', '«def»')"),
    (Text, "SET PASSWORD FOR 'app'@'%' = '«hunter2»'"),
    (Text, "SELECT PASSWORD('«hunter2»')"),
    (Tag("db.statement"), "UPDATE t SET api_token='«hunter2»', n=1"),
    (Tag("db.query.text"), "insert into accounts (email, secret) values ('a@b', '«hunter2»')"),
    // Addresses and data sources.
    (Text, "connecting to postgres://«app:hunter2»@db:5432/shop"),
    (Text, "mongodb+srv://«app:p%40ss»@cluster0.mongodb.net/?retryWrites=true"),
    (Text, "redis://«:hunter2»@cache:6379/0"),
    (Text, "amqp://«guest:guest»@rabbit:5672/"),
    (Text, "https://«ghs_token»@github.com/a/b.git"),
    (Text, "postgres://«app:p/ss»@db/shop"),
    (Text, "dsn=«app:hunter2»@tcp(db:3306)/shop"),
    (Text, "Server=db;Database=shop;User Id=sa;Password=«hunter2»;Encrypt=true"),
    (Text, "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=«Zm9vYmFyZm9vYmFyCg==»;EndpointSuffix=x"),
    (Text, "Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey=«abc123=»"),
    (Text, "jdbc:mysql://db/shop?user=app&password=«hunter2»"),
    (Text, "jdbc:oracle:thin:@db user=app password=«hunter2»"),
    (Text, "host=db user=app password=«hunter2» dbname=shop"),
    (Text, "GET http://«ann:pw»@shop/x?token=«abc»&a=1"),
    (Tag("db.connection_string"), "postgres://«app:hunter2»@db/x"),
    (Tag("url.full"), "http://«u:pw»@front/x?a=1&api_key=«hunter2»"),
    (Tag("url.query"), "a=1&token=«hunter2»"),
    // Logs, exceptions, dumps of objects.
    (Text, "Authorization: «Bearer abc.def-1»\nnext"),
    (Text, "got 'Bearer «abc12345»' from it"),
    (Text, "sent bearer «abc12345» to it"),
    (Text, "Basic «dXNlcjpwYXNz»"),
    (Text, "Set-Cookie: «sid=1; Path=/»"),
    (Text, "> Cookie: «a=b; c=d»\n> Accept: */*"),
    (Text, "{'api_key': '«k1»', 'n': 2}"),
    (Text, "User(name=ann, password=«hunter2», id=7)"),
    (Text, "User{name='ann', password='«hunter2»'}"),
    (Text, "Config { user: \"app\", password: \"«hunter2»\", port: 1 }"),
    (Text, "Config { token: Some(\"«hunter2»\") }"),
    (Text, "{:user=>\"ann\", :password=>\"«hunter2»\"}"),
    (Text, "&{User:app Password:«hunter2» Port:1}"),
    (Text, "java.sql.SQLException: cannot log in, url=x, password=«hunter2»"),
    (Text, "ValueError: invalid password: «hunter2»"),
    (Text, "error: the password '«hunter2»' is wrong"),
    (Text, "the password is «hunter22»"),
    (Text, "secret is: «hunter22»"),
    (Text, "password -> «hunter22»"),
    (Text, "token «5f3b2a1c9d8e7f60» is expired"),
    (Text, "Invalid api_key: «hunter2»"),
    (Text, "level=info msg=login user=ann token=«hunter2» took=5ms"),
    (Text, "[debug] headers={\"x-api-key\": \"«hunter2»\"}"),
    (Text, "secret=«hunter2»,user=ann"),
    (Text, "b'password': b'«hunter2»'"),
    (Tag("exception.message"), "cannot connect with password=«hunter2»"),
    (Tag("process.command_line"), "tool --password «hunter2»"),
    (Tag("http.request.header.authorization"), "«[\"Bearer abc\"]»"),
    (Tag("user.password"), "«hunter2»"),
    (Tag("req"), r#"{"user":"ann","password":"«hunter2»"}"#),
    (Tag("res"), "password=«hunter2»&x=1"),
    (Tag("graphql.document"), "mutation { login(password: \"«hunter2»\") { id } }"),
    // Shapes.
    (Text, "using JWT here"),
    (Text, "key «AKIAIOSFODNN7EXAMPLE» used"),
    (Text, "id «ASIAY34FZKBOKMUTVV7A» used"),
    (Text, "found «ghp_1234567890abcdefghijklmnopqrstuvwxyz» in it"),
    (Text, "found «github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz» in it"),
    (Text, "found «glpat-ABCdef1234567890abcd» in it"),
    (Text, "found «xoxb-123456789012-1234567890123-AbCdEfGhIjKl» in it"),
    (Text, "found «sk_live_4eC39HqLyjWDarjtT1zdp7dc» in it"),
    (Text, "found «rk_test_4eC39HqLyjWDarjtT1zdp7dc» in it"),
    (Text, "found «whsec_4eC39HqLyjWDarjtT1zdp7dc» in it"),
    (Text, "found «AIzaSyA1234567890abcdefghijklmnopqrstuvw» in it"),
    (Text, "found «ya29.a0AfH6SMBx1234567890abcdef» in it"),
    (Text, "found «GOCSPX-1234567890abcdefghij» in it"),
    (Text, "found «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» in it"),
    (Text, "found «npm_1234567890abcdefghijklmnopqrstuvwxyz» in it"),
    (Text, "found «dckr_pat_1234567890abcdefghijkl» in it"),
    (Text, "found «hvs.CAESIJ1234567890abcdefghij» in it"),
    (Text, "found «dop_v1_0123456789abcdef0123456789abcdef» in it"),
    (Text, "found «shpat_0123456789abcdef0123456789abcdef» in it"),
    (Text, "found «sk-ant-api03-1234567890abcdefghijkl» in it"),
    (Text, "found «sk-proj-1234567890abcdefghijkl» in it"),
    (Text, "found «hf_abcdefghijklmnopqrstuvwxyz12345678» in it"),
    (Text, "found «glsa_1234567890abcdefghijklmnop» in it"),
    (Text, "found «NRAK-ABCDEFGHIJ1234567890ABCDEFG» in it"),
    (Text, "hash «$2b$12$R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2t0jWMUW» in it"),
    (Text, "bot «110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1» in it"),
    (Text, "post to https://hooks.slack.com/services/«T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX»"),
    (Text, "-----BEGIN RSA PRIVATE KEY-----\n«MIIEowIBAAKCAQEA1\nabc\n»-----END RSA PRIVATE KEY-----"),
    (Text, "-----BEGIN PRIVATE KEY-----\n«MIIEvQIBADANBgkqhkiG9w0BAQEFAASC»"),
    (Body, r#"{"pem":"-----BEGIN EC PRIVATE KEY-----\n«MHcCAQEEIIGl\n»-----END EC PRIVATE KEY-----\n"}"#),
    (Tag("note"), "JWT"),
    (Header("X-Note"), "key «AKIAIOSFODNN7EXAMPLE» used"),
    (Path, "/x/«ghp_1234567890abcdefghijklmnopqrstuvwxyz»/y"),
];

/// The text as it is sent, and as it must be shown.
fn sent_and_shown(row: &str) -> (String, String) {
    let row = row.replace("JWT", &format!("«{JWT}»"));
    let sent = row.replace(['«', '»'], "");
    let mut shown = String::new();
    let mut rest = row.as_str();
    while let Some((before, secret)) = rest.split_once('«') {
        shown += before;
        shown += REDACTED;
        rest = secret.split_once('»').unwrap().1;
    }
    (sent, shown + rest)
}

fn call() -> Span {
    let mut span: Span = serde_json::from_value(json!({
        "trace": "1", "id": "1", "caller": "web-1", "callee": "users", "port": 80, "wire": "http1", "method": "POST",
        "path": "/", "start_us": 0, "duration_us": 1, "request_bytes": 0, "response_bytes": 0, "status": 200,
    }))
    .unwrap();
    span.payload = Some(Box::default());
    span
}

/// What is shown of a text.
fn shown(place: In, text: &str) -> String {
    let redactor = Redactor::default();
    let redact = |mut span: Span| {
        redactor.redact_calls(&mut [&mut span]);
        span
    };
    let with = |payload: Payload| {
        let span = redact(Span { payload: Some(Box::new(payload)), ..call() });
        *span.payload.unwrap()
    };
    match place {
        In::Text => redactor.text(text).unwrap_or_else(|| text.to_owned()),
        In::Body => {
            let body = text.as_bytes().to_vec();
            String::from_utf8(with(Payload { request_body: body, ..Payload::default() }).request_body)
                .unwrap()
        }
        In::Header(name) => {
            let response_headers = vec![(name.to_owned(), text.to_owned())];
            with(Payload { response_headers, ..Payload::default() }).response_headers.remove(0).1
        }
        In::Path => redact(Span { path: text.to_owned(), ..call() }).path,
        In::Tag(key) => {
            let mut span = ReportedSpan::new(TraceId(1), SpanId(1));
            span.tags.push((key.to_owned(), text.to_owned()));
            redactor.reported(&mut span);
            span.tags.remove(0).1
        }
    }
}

/// Numbers and lists are replaced by a text with quotes.
fn without_quotes(text: &str) -> String {
    text.replace("\\\"[redacted]\\\"", REDACTED).replace("\"[redacted]\"", REDACTED)
}

#[test]
fn planted_secrets_are_hidden_and_the_rest_is_shown() {
    let n_secrets: usize =
        PLANTED.iter().map(|(_, row)| row.matches(['«']).count() + row.matches("JWT").count()).sum();
    assert!(n_secrets >= 200, "only {n_secrets} secrets are planted");
    let mut wrong = Vec::new();
    for (place, row) in PLANTED {
        let (sent, expected) = sent_and_shown(row);
        let got = shown(*place, &sent);
        if without_quotes(&got) != without_quotes(&expected) {
            wrong.push(format!("{place:?}\n  sent     {sent}\n  shown    {got}\n  expected {expected}"));
        } else if shown(*place, &got) != got {
            wrong.push(format!("{place:?} is changed again: {got}"));
        }
        if let In::Body = place
            && serde_json::from_str::<serde_json::Value>(&sent).is_ok()
            && serde_json::from_str::<serde_json::Value>(&got).is_err()
        {
            wrong.push(format!("no longer JSON: {got}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), PLANTED.len(), wrong.join("\n"));
}

#[test]
fn secrets_are_hidden_in_any_context() {
    // Whatever is around it, a secret with its name is found.
    for (before, after) in [
        ("", ""),
        ("x ", " y"),
        ("[", "]"),
        ("(", ")"),
        ("{", "}"),
        ("a, ", ", b"),
        ("a; ", "; b"),
        ("\n", "\n"),
    ] {
        for pair in [
            "password=hunter2xyz",
            "token: 'hunter2xyz'",
            "api_key=\"hunter2xyz\"",
            "client_secret => hunter2xyz",
        ] {
            let text = format!("{before}{pair}{after}");
            let got = shown(In::Text, &text);
            assert!(!got.contains("hunter2xyz"), "{text} is shown as {got}");
            assert!(got.ends_with(after) && got.starts_with(before), "{text} is shown as {got}");
        }
    }
}

#[test]
fn bodies_in_utf_16_are_read() {
    let text = r#"{"user":"ann","password":"hunter2"}"#;
    for (mark, bytes) in [
        ([0xff, 0xfe], text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>()),
        ([0xfe, 0xff], text.encode_utf16().flat_map(u16::to_be_bytes).collect()),
    ] {
        let mut span = call();
        span.payload.as_mut().unwrap().request_body = [mark.to_vec(), bytes].concat();
        Redactor::default().redact_calls(&mut [&mut span]);
        assert_eq!(span.payload.unwrap().request_body, br#"{"user":"ann","password":"[redacted]"}"#);
    }
}

#[test]
fn files_among_the_parts_hide_nothing() {
    let mut body = b"--b\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\n\xff\xd8\x00\r\n--b\r\nContent-Disposition: form-data; name=\"password\"\r\n\r\n".to_vec();
    body.extend(b"hunter2\r\n--b--\xff");
    let mut span = call();
    span.payload.as_mut().unwrap().request_body = body;
    Redactor::default().redact_calls(&mut [&mut span]);
    let got = span.payload.unwrap().request_body;
    assert!(!got.windows(7).any(|w| w == b"hunter2") && got.windows(3).any(|w| w == b"\xff\xd8\x00"));
}

/// A small generator of numbers, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        // Xorshift; good enough to vary texts.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        self.roll() % n
    }

    fn pick<'t>(&mut self, list: &[&'t str]) -> &'t str {
        list[self.below(list.len() as u64) as usize]
    }

    fn hex(&mut self, n: usize) -> String {
        (0..n).map(|_| char::from(b"0123456789abcdef"[self.below(16) as usize])).collect()
    }

    fn base64(&mut self, n: usize) -> String {
        let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        (0..n).map(|_| char::from(letters[self.below(64) as usize])).collect()
    }

    fn uuid(&mut self) -> String {
        format!("{}-{}-4{}-a{}-{}", self.hex(8), self.hex(4), self.hex(3), self.hex(3), self.hex(12))
    }

    fn word(&mut self) -> &'static str {
        self.pick(&[
            "ball",
            "socks",
            "order",
            "green",
            "invoice",
            "parcel",
            "summer",
            "coffee",
            "keyboard",
            "monkey",
            "passport",
            "compass",
            "design",
            "inside",
            "author",
            "session",
            "cookie",
            "secretary",
            "token",
            "authentication",
        ])
    }

    fn name(&mut self) -> &'static str {
        self.pick(&[
            "Ann Lee",
            "Björn Ålund",
            "José Pérez",
            "Key West",
            "Otto Passmann",
            "Sid Vicious",
            "Carda Mom",
        ])
    }
}

/// An ordinary body of one of many shapes.
fn ordinary(dice: &mut Dice, shape: u64) -> String {
    let (n, cents, word, other, name, uuid) =
        (dice.below(10_000), dice.below(100), dice.word(), dice.word(), dice.name(), dice.uuid());
    let status = dice.pick(&["200", "201", "404", "409", "500", "503"]);
    let time = format!("2026-11-{:02}T{:02}:{:02}:{:02}Z", 1 + n % 28, n % 24, n % 60, cents % 60);
    match shape {
        0 => json!({ "id": uuid, "items": [{ "sku": format!("{word}-{n}"), "pieces": cents, "price": n }], "total": n, "currency": "EUR",
            "countryCode": "DE", "postalCode": "10115", "statusCode": 200, "createdAt": time }).to_string(),
        1 => json!({ "id": n, "name": name, "email": format!("{word}{n}@example.com"), "roles": ["admin", "author"], "lastLogin": time,
            "passwordChangedAt": time, "hasPassword": true, "sessionCount": cents, "authProvider": "ldap", "mfaEnabled": false }).to_string(),
        2 => json!({ "sku": word, "title": format!("{word} {other}"), "code": format!("PRD-{n}-{cents}"), "key": word, "tags": [word, other],
            "image": format!("/img/{word}-{n}.jpg"), "barcode": format!("40063813{n:05}"), "keywords": [other] }).to_string(),
        3 => json!({ "status": "UP", "components": { "db": { "status": "UP", "details": { "database": "PostgreSQL" } }, "diskSpace": { "free": n } },
            "version": format!("1.{n}.{cents}"), "commit": dice.hex(40) }).to_string(),
        4 => format!("# HELP http_requests_total Requests.\n# TYPE http_requests_total counter\nhttp_requests_total{{code=\"{status}\",method=\"GET\",key=\"{word}\"}} {n}\nauth_failures_total {cents}\ntoken_bucket_size {n}\nsession_active {n}\n"),
        5 => format!("<!DOCTYPE html><html><head><title>{word}</title></head><body class=\"{other}\"><h1>{name}</h1><form><label for=\"password\">Password</label><input type=\"password\" name=\"password\" id=\"password\" placeholder=\"Password\"><a href=\"/forgot-password\">Forgot your password?</a></form><p>Your session has ended. Please sign in.</p></body></html>"),
        6 => format!("{time} INFO  [{word}] c.s.{other}.OrderController : order {uuid} accepted, {n} pieces, code={status}, took={cents}ms"),
        7 => format!("{time} ERROR c.s.auth.TokenFilter: Unexpected token: '}}' at line {n}\n\tat com.shop.auth.TokenFilter.doFilter(TokenFilter.java:{n})\n\tat java.base/java.lang.Thread.run(Thread.java:{cents})"),
        8 => json!({ "traceId": dice.hex(32), "spanId": dice.hex(16), "parentSpanId": dice.hex(16), "traceparent": format!("00-{}-{}-01", dice.hex(32), dice.hex(16)) }).to_string(),
        9 => json!({ "digest": format!("sha256:{}", dice.hex(64)), "etag": dice.hex(32), "md5": dice.hex(32), "size": n, "path": format!("blobs/{word}/{n}") }).to_string(),
        10 => json!({ "avatar": format!("data:image/png;base64,{}==", dice.base64(400)), "width": n, "note": word }).to_string(),
        11 => json!({ "error": { "code": "ORDER_NOT_FOUND", "message": format!("no order {uuid}"), "status": 404 }, "requestId": uuid }).to_string(),
        12 => json!({ "items": [], "nextPageToken": format!("{}{n}", dice.hex(12)), "total_tokens": n, "usage": { "prompt_tokens": n, "completion_tokens": cents, "tokens": n } }).to_string(),
        13 => format!("id,name,country_code,amount\n{n},{name},DE,{cents}.50\n{},{word},FR,{n}", n + 1),
        14 => format!("name={word}&pieces={n}&country_code=DE&sort_key={other}&page={cents}"),
        15 => json!({ "query": "query($id: ID!) { order(id: $id) { id code key items { sku } } }", "variables": { "id": uuid, "first": n } }).to_string(),
        16 => format!("services:\n  {word}:\n    image: shop/{other}:{n}\n    ports: [\"8080:80\"]\n    environment:\n      LOG_LEVEL: info\n      CACHE_KEY: {word}\n      PASSWORD_FILE: /run/secrets/db\n"),
        17 => format!("<order id=\"{uuid}\"><item sku=\"{word}\" pieces=\"{n}\"/><code>{status}</code><key>{other}</key><name>{name}</name></order>"),
        18 => format!("SELECT id, code, key FROM {word}s WHERE order_key = '{n}' AND country_code = 'DE' ORDER BY sort_key LIMIT {cents}"),
        19 => format!("INSERT INTO orders (id, sku, country_code, pieces) VALUES ({n}, '{word}', 'DE', {cents})"),
        20 => format!("GET /api/{word}/{n}?page={cents}&sort=key&code={status} HTTP/1.1 {status} {n}us from 10.0.0.{} user-agent Mozilla/5.0 (X11; Linux x86_64)", cents % 255),
        21 => format!("{word}: authentication failed for user {name}: wrong password\n{word}: password is required\ntoken is expired, please sign in\nthe password must have at least {} letters", 8 + cents),
        22 => json!({ "feature": { "key": format!("checkout.{word}.step{n}"), "enabled": true, "rollout": cents }, "keys": [word, other], "session": { "active": n } }).to_string(),
        23 => json!({ "errors": [{ "field": "password", "code": "too_short", "min": 8 }, { "field": "token", "code": "expired" }] }).to_string(),
        24 => format!("http://{word}:8080/api/{other}/{n} answered {status} in {cents}ms via http://proxy:3128/ and https://docs.example.com/auth/tokens#keys"),
        25 => format!("mysql -u root -h db -P 3306 {word}; psql -p 5432 -U app; docker run -p 8080:80 {other}; cp -p a b; ssh -p 22 host; curl -u {word} http://shop/"),
        26 => json!({ "geo": { "lat": 52.5, "lon": 13.4 }, "iban_last4": "1234", "cards": cents, "cardType": "visa", "signedAt": time, "assignee": name, "sidebar": true }).to_string(),
        27 => format!("worker {n}: job {uuid} key {word} done; {cents} tokens left in bucket; cookie banner shown; session of {name} closed after {n}s; auth took {cents}ms"),
        28 => format!("Error: connect ECONNREFUSED 10.0.0.{}:5432\n    at TCPConnectWrap.afterConnect [as oncomplete] (node:net:{n}:16) {{\n  errno: -111,\n  code: 'ECONNREFUSED',\n  syscall: 'connect'\n}}", cents % 255),
        _ => json!({ "event": "key_pressed", "key": "Enter", "code": "KeyA", "keyCode": 13, "pass": n, "fail": cents, "pass_rate": 0.97, "author": name, "authority": word,
            "token_type": "Bearer", "expires_in": 3600, "secretName": word, "public_key": dice.base64(64), "idempotency_key": uuid, "cacheKey": dice.hex(40) }).to_string(),
    }
}

#[test]
fn ordinary_bodies_stay_as_they_are() {
    let mut dice = Dice(0x5eed);
    let mut wrong = Vec::new();
    for n in 0..1_020 {
        let text = ordinary(&mut dice, n % 30);
        for place in [In::Body, In::Text, In::Tag("note"), In::Header("x-note")] {
            let got = shown(place, &text);
            if got != text {
                wrong.push(format!("{place:?} {}:\n  {text}\n  {got}", n % 30));
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong[..wrong.len().min(12)].join("\n"));
}

#[test]
fn ordinary_names_keep_their_values() {
    for (place, text) in [
        (In::Header("traceparent"), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        (In::Header("etag"), "\"33a64df551425fcc55e4d42a148795d9f25f89d4\""),
        (In::Header("idempotency-key"), "8e03978e-40d5-43dd-bc93-6894a57f9324"),
        (In::Header("sec-websocket-key"), "dGhlIHNhbXBsZSBub25jZQ=="),
        (In::Header("www-authenticate"), "Bearer realm=\"shop\", error=\"invalid_token\""),
        (In::Header("user-agent"), "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"),
        (In::Header("cache-control"), "private, max-age=0"),
        (In::Tag("http.status_code"), "200"),
        (In::Tag("rpc.grpc.status_code"), "14"),
        (In::Tag("db.statement"), "SELECT * FROM users WHERE id = $1 AND token_hash = $2"),
        (In::Tag("messaging.rabbitmq.destination.routing_key"), "orders.created"),
        (In::Tag("code.function"), "OrderController.getOrderById"),
        (In::Tag("thread.name"), "http-nio-8080-exec-17"),
        (In::Path, "/orders/3fa85f64-5717-4562-b3fc-2c963f66afa6/items?sort=key&code=DE"),
        (In::Text, "use Basic authentication or a bearer token"),
        (In::Text, "Access denied for user 'app'@'db' (using password: YES)"),
        (In::Text, "secret \"db-credentials\" not found"),
        (In::Text, "password: ${DB_PASSWORD}"),
        (In::Text, "password=$DB_PASSWORD"),
        (In::Text, "git clone git+ssh://git@github.com/a/b.git"),
        (In::Text, "http://shop/a@b?x=1"),
        (In::Text, "password: string;\ntoken: string;"),
        (In::Text, "-----BEGIN CERTIFICATE-----\nMIIDXTCCAkWgAwIBAgIJ\n-----END CERTIFICATE-----"),
        (In::Text, "Usage: tool --user <user> --password <password> [--token-file <path>]"),
    ] {
        assert_eq!(shown(place, text), text, "{place:?}");
    }
}

/// Prints how long it takes; a goal would fail on a busy machine.
#[test]
#[ignore = "measures"]
#[expect(clippy::print_stderr, reason = "it is the result")]
fn cost_of_ordinary_tags() {
    let tags = [
        ("http.method", "GET"),
        ("http.url", "http://order:8080/api/orders/17"),
        ("http.status_code", "200"),
        ("net.peer.name", "order"),
        ("net.peer.port", "8080"),
        ("http.flavor", "1.1"),
        ("thread.name", "http-nio-8080-exec-17"),
        ("http.user_agent", "Mozilla/5.0 (X11; Linux x86_64)"),
        ("db.statement", "SELECT id, name FROM orders WHERE id = ?"),
        ("component", "http"),
    ];
    let mut span = ReportedSpan::new(TraceId(1), SpanId(1));
    span.name = "GET /api/orders/{id}".into();
    span.tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let redactor = Redactor::default();
    let started = std::time::SystemTime::now();
    for _ in 0..200_000 {
        assert!(redactor.redact_reported(std::hint::black_box(&span)).is_none());
    }
    eprintln!("{} ns per span", started.elapsed().unwrap().as_nanos() / 200_000);
}
