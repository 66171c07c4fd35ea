package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	zipkin "github.com/openzipkin/zipkin-go"
	zipkinmiddleware "github.com/openzipkin/zipkin-go/middleware/http"
)

// A profile is four short texts.
const maxProfile = 16 << 10

var errUnknownUser = errors.New("there is no such user")

type profile struct {
	Username  string `json:"username"`
	Firstname string `json:"firstname"`
	Lastname  string `json:"lastname"`
	Role      string `json:"role"`
}

type usersClient struct {
	url    string
	http   *zipkinmiddleware.Client
	tokens tokenIssuer
}

// find asks the users service for a profile, in the name of that user.
func (c usersClient) find(ctx context.Context, username string) (profile, error) {
	token, err := c.tokens.issue(profile{Username: username, Role: "LOGIN"})
	if err != nil {
		return profile{}, err
	}
	address := c.url + "/users/" + url.PathEscape(username)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return profile{}, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	if span := zipkin.SpanFromContext(ctx); span != nil {
		span.Tag("user", username)
	}
	response, err := c.http.DoWithAppSpan(request, "find user")
	if err != nil {
		return profile{}, err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		var found profile
		err := json.NewDecoder(io.LimitReader(response.Body, maxProfile)).Decode(&found)
		return found, err
	case http.StatusNotFound:
		return profile{}, errUnknownUser
	default:
		return profile{}, fmt.Errorf("users answered %s", response.Status)
	}
}
