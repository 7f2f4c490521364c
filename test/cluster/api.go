package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// api is a small client for the cluster's API server with administrator permissions.
type api struct {
	server string
	http   *http.Client
}

type object = map[string]any

func (c *cluster) api() (*api, error) {
	pair, err := tls.LoadX509KeyPair(c.pki("admin.crt"), c.pki("admin.key"))
	if err != nil {
		return nil, fmt.Errorf("load the administrator's certificate: %w", err)
	}

	ca, err := os.ReadFile(c.pki("ca.crt"))
	if err != nil {
		return nil, err
	}

	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair},
		RootCAs: pool}}

	return &api{server: c.server(), http: &http.Client{Transport: transport, Timeout: 10 * time.Second}}, nil
}

// do sends a request and decodes the response into out unless it is nil. A status other than 2xx is an error.
func (a *api) do(ctx context.Context, method, path, contentType string, body, out any) error {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		r = bytes.NewReader(b)
	}

	req, err := http.NewRequestWithContext(ctx, method, a.server+path, r)
	if err != nil {
		return err
	}

	req.Header.Set("User-Agent", "afloat-cluster")
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}

	resp, err := a.http.Do(req)
	if err != nil {
		return err
	}

	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(b))
	}
	if out == nil {
		return nil
	}

	return json.Unmarshal(b, out)
}

func (a *api) get(ctx context.Context, path string, out any) error {
	return a.do(ctx, http.MethodGet, path, "", nil, out)
}

// apply creates or updates an object by server-side apply.
func (a *api) apply(ctx context.Context, path string, o object) error {
	return a.do(ctx, http.MethodPatch, path+"?fieldManager=afloat-cluster&force=true",
		"application/apply-patch+yaml", o, nil)
}

// node contains the fields of a Node that this program reads.
type node struct {
	Metadata struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Status struct {
		Conditions []struct{ Type, Status string } `json:"conditions"`
		NodeInfo   struct {
			KubeletVersion string `json:"kubeletVersion"`
		} `json:"nodeInfo"`
	} `json:"status"`
}

func (n node) ready() bool {
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return false
}

func (a *api) nodes(ctx context.Context) ([]node, error) {
	var list struct {
		Items []node `json:"items"`
	}
	err := a.get(ctx, "/api/v1/nodes", &list)
	return list.Items, err
}

// waitFor calls check until it returns nil. It returns the last error when ctx ends, or the error of alive.
func waitFor(ctx context.Context, alive func() error, check func(context.Context) error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()

	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if dead := alive(); dead != nil {
			return dead
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}
