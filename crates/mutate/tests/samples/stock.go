// Package main serves the stock of a shop.
package main

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"sync"

	"github.com/redis/go-redis/v9"
)

type server struct {
	store  *redis.Client
	client *http.Client
}

// Stock says how much is left of an item.
type Stock struct {
	Item string `json:"item"`
	Left int64  `json:"left,omitempty"`
	note string
}

func (s *server) show(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	item := r.PathValue("item")
	left, err := s.store.Get(ctx, item).Result()
	if err == redis.Nil {
		http.NotFound(w, r)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	json.NewEncoder(w).Encode(map[string]any{"item": item, "left": left, "open": true})
}

func (s *server) take(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	item := r.PathValue("item")
	price, err := s.fetchPrice(ctx, item)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	supplier, err := s.client.Get("http://supplier:8083/order/" + item)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer supplier.Body.Close()
	count, err := s.store.Incr(ctx, item).Result()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if err := s.store.Set(ctx, "last", item, 0).Err(); err != nil {
		log.Print(err)
	}
	log.Print(price)
	json.NewEncoder(w).Encode(Stock{Item: item, Left: count})
}

func (s *server) fetchPrice(ctx context.Context, item string) (int, error) {
	answer, err := s.client.Get("http://price:8082/price/" + item)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	var price int
	err = json.NewDecoder(answer.Body).Decode(&price)
	return price, err
}

func (s *server) warm(items []string) {
	var wg sync.WaitGroup
	for _, item := range items {
		wg.Add(1)
		go func() {
			defer wg.Done()
			s.fetchPrice(context.Background(), item)
		}()
	}
	wg.Wait()
}

func main() {
	s := &server{store: redis.NewClient(&redis.Options{Addr: "redis:6379"}), client: http.DefaultClient}
	s.warm([]string{"apple", "pear"})
	http.HandleFunc("GET /stock/{item}", s.show)
	http.HandleFunc("POST /take/{item}", s.take)
	http.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) {})
	log.Fatal(http.ListenAndServe(":8081", nil))
}
