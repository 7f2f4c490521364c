package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/registry"
)

// registryProgram returns this program itself as the server of images.
func (c *cluster) registryProgram() program {
	return program{name: "registry", path: filepath.Join(c.dir, "bin", "afloat-cluster"),
		args: []string{"registry", "--address=" + c.registry(), "--dir=" + filepath.Join(c.dir, "registry")}}
}

// waitRegistry waits until the registry accepts connections.
func (c *cluster) waitRegistry(ctx context.Context) error {
	return waitFor(ctx, c.mustRun("registry"), func(ctx context.Context) error {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", c.registry())
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// serveRegistry serves images from dir until it is killed.
func serveRegistry(address, dir string) error {
	h, err := newRegistry(dir)
	if err != nil {
		return err
	}
	return http.ListenAndServe(address, h) //nolint:gosec // only the cluster can reach it
}

// newRegistry returns a registry that stores blobs and manifests in dir.
func newRegistry(dir string) (http.Handler, error) {
	blobs := filepath.Join(dir, "blobs")
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		return nil, err
	}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)),
		registry.WithBlobHandler(registry.NewDiskBlobHandler(blobs)))
	r := &persistentRegistry{inner: inner, dir: filepath.Join(dir, "manifests")}
	return r, r.replay()
}

// persistentRegistry extends the in-memory registry of the library: manifests survive a restart, and
// docker.io/library/nginx is the same as nginx.
type persistentRegistry struct {
	inner http.Handler
	dir   string
}

type manifest struct {
	Path, ContentType string
	Body              []byte
}

// Repositories below private/ can only be read with this account.
const (
	privateRepositories          = "/v2/private/"
	privateUser, privatePassword = "afloat", "let-me-in"
)

func (p *persistentRegistry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Runtimes pass the name of the registry. Programs that push images do not, and check whether images
	// exist.
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead && r.URL.Query().Has("ns")
	if reads && strings.HasPrefix(r.URL.Path, privateRepositories) {
		if user, password, _ := r.BasicAuth(); user != privateUser || password != privatePassword {
			w.Header().Set("WWW-Authenticate", `Basic realm="private"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`,
				http.StatusUnauthorized)
			return
		}
	}

	if rest, ok := strings.CutPrefix(r.URL.Path, "/v2/library/"); ok {
		r.URL.Path, r.URL.RawPath = "/v2/"+rest, ""
	}
	if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/manifests/") {
		p.inner.ServeHTTP(w, r)
		return
	}

	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	r.Body = io.NopCloser(bytes.NewReader(body))
	m := manifest{Path: r.URL.Path, ContentType: r.Header.Get("Content-Type"), Body: body}
	answer := &statusWriter{ResponseWriter: w}
	p.inner.ServeHTTP(answer, r)
	if answer.status/100 == 2 {
		if err := p.keep(m); err != nil {
			log.Printf("keep %s: %v", m.Path, err)
		}
	}
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (p *persistentRegistry) keep(m manifest) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(p.dir, url.PathEscape(m.Path)+".json"), b, 0o644)
}

// replay puts the stored manifests into the in-memory registry.
func (p *persistentRegistry) replay() error {
	files, err := filepath.Glob(filepath.Join(p.dir, "*.json"))
	if err != nil {
		return err
	}

	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		var m manifest
		if err := json.Unmarshal(b, &m); err != nil {
			return fmt.Errorf("read %s: %w", f, err)
		}
		req := httptest.NewRequest(http.MethodPut, m.Path, bytes.NewReader(m.Body))
		req.Header.Set("Content-Type", m.ContentType)
		answer := httptest.NewRecorder()
		p.inner.ServeHTTP(answer, req)
		if answer.Code/100 != 2 {
			return fmt.Errorf("restore %s: %s", m.Path, answer.Body)
		}
	}

	return nil
}
