package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"log"
	"net/http"
)

// A login request is a few dozen bytes; more is a mistake or an attack.
const maxBody = 4 << 10

// passwords are kept as digests. Everybody's is the name, twice.
var passwords = func() map[string][32]byte {
	digests := map[string][32]byte{}
	for _, name := range []string{"ada", "alan", "barbara", "edsger", "grace", "johnd", "margaret"} {
		digests[name] = sha256.Sum256([]byte(name + name))
	}
	return digests
}()

type credentials struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

type loginHandler struct {
	users  usersClient
	tokens tokenIssuer
}

func (h loginHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		refuse(w, http.StatusMethodNotAllowed, "log in with POST")
		return
	}
	var given credentials
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&given); err != nil {
		refuse(w, http.StatusBadRequest, "the body is not a login")
		return
	}
	if !given.match() {
		refuse(w, http.StatusUnauthorized, "wrong name or password")
		return
	}
	profile, err := h.users.find(r.Context(), given.Username)
	if errors.Is(err, errUnknownUser) {
		refuse(w, http.StatusUnauthorized, "wrong name or password")
		return
	}
	if err != nil {
		log.Printf("login of %q: %v", given.Username, err)
		refuse(w, http.StatusBadGateway, "who that is cannot be found out")
		return
	}
	token, err := h.tokens.issue(profile)
	if err != nil {
		log.Printf("login of %q: %v", given.Username, err)
		refuse(w, http.StatusInternalServerError, "no token could be made")
		return
	}
	answer(w, http.StatusOK, map[string]string{"accessToken": token})
}

func (c credentials) match() bool {
	expected, known := passwords[c.Username]
	digest := sha256.Sum256([]byte(c.Password))
	return subtle.ConstantTimeCompare(expected[:], digest[:]) == 1 && known
}

func refuse(w http.ResponseWriter, status int, reason string) {
	answer(w, status, map[string]string{"error": reason})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		log.Printf("answering: %v", err)
	}
}
