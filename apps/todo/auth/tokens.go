package main

import (
	"time"

	"github.com/golang-jwt/jwt/v5"
)

type tokenIssuer struct {
	secret   []byte
	lifetime time.Duration
}

func (t tokenIssuer) issue(p profile) (string, error) {
	claims := jwt.MapClaims{
		"username":  p.Username,
		"firstname": p.Firstname,
		"lastname":  p.Lastname,
		"role":      p.Role,
		"exp":       time.Now().Add(t.lifetime).Unix(),
	}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(t.secret)
}
