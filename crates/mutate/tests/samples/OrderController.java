package shop.order;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;

import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.client.RestTemplate;

/** Takes orders. */
@RestController
public class OrderController {
    private final RestTemplate restTemplate;
    private final StringRedisTemplate redis;

    public OrderController(RestTemplate restTemplate, StringRedisTemplate redis) {
        this.restTemplate = restTemplate;
        this.redis = redis;
    }

    @GetMapping("/orders/{id}")
    public ResponseEntity<Map<String, Object>> show(@PathVariable String id) {
        String item = redis.opsForValue().get("order:" + id);
        if (item == null) {
            return ResponseEntity.notFound().build();
        }
        return ResponseEntity.ok(Map.of("id", id, "item", item, "count", 1));
    }

    @PostMapping("/orders")
    public Map<String, Object> place(@RequestBody Map<String, String> order) {
        String item = order.get("item");
        Integer left = restTemplate.getForObject("http://stock:8081/take/" + item, Integer.class);
        String cost = restTemplate.getForObject("http://price:8082/price/" + item, String.class);
        String payment = restTemplate.postForObject("http://payment:8083/pay", cost, String.class);
        redis.opsForValue().set("order:" + item, item);
        long number = redis.opsForValue().increment("orders");
        Map<String, Object> answer = new HashMap<>();
        answer.put("number", number);
        answer.put("left", left);
        if (payment != null) {
            answer.put("paid", true);
        }
        return answer;
    }

    void warm(List<String> items) throws InterruptedException {
        CountDownLatch latch = new CountDownLatch(items.size());
        CompletableFuture<Void> first = CompletableFuture.runAsync(() -> latch.countDown());
        first.join();
        latch.await();
        redis.delete("orders");
    }
}
