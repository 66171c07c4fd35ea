package todo.users;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.InputStream;
import java.util.Collection;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

/** All users by name. They come with the program and do not change. */
final class Directory {
  private final Map<String, User> users = new TreeMap<>();

  static Directory load() throws IOException {
    Directory directory = new Directory();
    try (InputStream file = Directory.class.getResourceAsStream("/users.json")) {
      for (User user : new ObjectMapper().readValue(file, User[].class)) {
        directory.users.put(user.username(), user);
      }
    }
    return directory;
  }

  Collection<User> all() {
    return users.values();
  }

  Optional<User> find(String username) {
    return Optional.ofNullable(users.get(username));
  }
}
