package dashboard

import (
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

//go:embed assets
var assets embed.FS

// policy allows the page its own files and nothing else: no code or style inside of documents, no other host.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// guard serves the page to those who know its token.
type guard struct {
	hosts []string // the values of the header Host that are right
	token string
	api   http.Handler
	files http.Handler
}

// newGuard returns the handler of the page at an address of loopback. api answers the requests below /api/.
func newGuard(address string, api http.Handler) (*guard, error) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it never fails

	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("the address of the page: %w", err)
	}
	files, err := fs.Sub(assets, "assets")
	if err != nil {
		return nil, fmt.Errorf("the files of the page: %w", err)
	}

	hosts := []string{address, net.JoinHostPort("localhost", port)}
	if port == "80" { // browsers leave it out
		hosts = append(hosts, strings.TrimSuffix(address, ":80"), "localhost")
	}

	return &guard{
		hosts: hosts,
		token: base64.RawURLEncoding.EncodeToString(secret),
		api:   api,
		files: http.FileServerFS(files),
	}, nil
}

// address returns the address of a page. The token stands in the fragment, which browsers send to no server.
func (g *guard) address(path string) string {
	return "http://" + g.hosts[0] + path + "#token=" + g.token
}

// ServeHTTP implements http.Handler.
//
// A request for another host comes from a page whose name was bound to loopback. A request of another origin
// comes from a page of somebody else. Neither knows the token, and neither is answered.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")

	if !slices.Contains(g.hosts, r.Host) {
		refuse(w, http.StatusForbidden, "this page is served for %s, not for %q", g.hosts[0], r.Host)
		return
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		refuse(w, http.StatusForbidden, "this page is not served to pages of %q", origin)
		return
	}

	switch {
	case strings.HasPrefix(r.URL.Path, "/api/"):
		given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if subtle.ConstantTimeCompare([]byte(given), []byte(g.token)) != 1 {
			refuse(w, http.StatusUnauthorized,
				"the token is missing or is that of another run: open the page by the address that the command printed")
			return
		}
		g.api.ServeHTTP(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		refuse(w, http.StatusMethodNotAllowed, "files of the page are only read")
	case strings.HasPrefix(r.URL.Path, "/assets/"):
		http.StripPrefix("/assets", g.files).ServeHTTP(w, r)
	case r.URL.Path == "/" || strings.HasPrefix(r.URL.Path, "/workload/"):
		page := r.Clone(r.Context())
		page.URL = &url.URL{Path: "/"}
		g.files.ServeHTTP(w, page)
	default:
		refuse(w, http.StatusNotFound, "there is nothing at %s", r.URL.Path)
	}
}
