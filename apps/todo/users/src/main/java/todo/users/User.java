package todo.users;

/** A profile, as it is stored and sent. */
record User(String username, String firstname, String lastname, String role) {}
