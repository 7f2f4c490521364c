package dashboard

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const loopback = "127.0.0.1:4000"

func guarded(t *testing.T) *guard {
	t.Helper()
	g, err := newGuard(loopback, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	}))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// The page answers its own user alone: not other hosts, not other origins, not without the token.
func TestGuard(t *testing.T) {
	g := guarded(t)
	for name, test := range map[string]struct {
		method, path string
		set          func(*http.Request)
		want         int
	}{
		"the page":                    {path: "/", want: http.StatusOK},
		"a deep link":                 {path: "/workload/clonesets.apps.kruise.io/shop/web", want: http.StatusOK},
		"a file":                      {path: "/assets/app.js", want: http.StatusOK},
		"a file that is not there":    {path: "/assets/other.js", want: http.StatusNotFound},
		"another path":                {path: "/etc/passwd", want: http.StatusNotFound},
		"a way out of the files":      {path: "/assets/../guard.go", want: http.StatusNotFound},
		"a write of a file":           {method: http.MethodPost, path: "/", want: http.StatusMethodNotAllowed},
		"data without a token":        {path: "/api/session", want: http.StatusUnauthorized},
		"data with a token":           {path: "/api/session", set: g.with(g.token), want: http.StatusTeapot},
		"data with another token":     {path: "/api/session", set: g.with(g.token + "x"), want: http.StatusUnauthorized},
		"data with half a token":      {path: "/api/session", set: g.with(g.token[:20]), want: http.StatusUnauthorized},
		"data with no token":          {path: "/api/session", set: g.with(""), want: http.StatusUnauthorized},
		"a token in the query":        {path: "/api/session?token=" + g.token, want: http.StatusUnauthorized},
		"localhost":                   {path: "/", set: host("localhost:4000"), want: http.StatusOK},
		"a name bound to loopback":    {path: "/", set: host("evil.example:4000"), want: http.StatusForbidden},
		"data by such a name":         {path: "/api/session", set: both(host("evil.example:4000"), g.with(g.token)), want: http.StatusForbidden},
		"another port":                {path: "/", set: host("127.0.0.1:80"), want: http.StatusForbidden},
		"a request of another origin": {method: http.MethodPost, path: "/api/apply", set: both(origin("https://evil.example"), g.with(g.token)), want: http.StatusForbidden},
		"a request of no origin":      {method: http.MethodPost, path: "/api/apply", set: both(origin("null"), g.with(g.token)), want: http.StatusForbidden},
		"a request of another port":   {method: http.MethodPost, path: "/api/apply", set: both(origin("http://127.0.0.1:5000"), g.with(g.token)), want: http.StatusForbidden},
		"a request of the page":       {method: http.MethodPost, path: "/api/apply", set: both(origin("http://"+loopback), g.with(g.token)), want: http.StatusTeapot},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), test.method, "http://"+loopback+test.path, http.NoBody)
			if test.set != nil {
				test.set(r)
			}
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			if w.Code != test.want {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, test.want)
			}
			for header, want := range map[string]string{
				"Content-Security-Policy": "default-src 'none'",
				"X-Content-Type-Options":  "nosniff",
				"Referrer-Policy":         "no-referrer",
				"Cache-Control":           "no-store",
			} {
				if w.Code == http.StatusNotFound && header == "Cache-Control" {
					continue // the file server removes it from errors
				}
				if got := w.Header().Get(header); !strings.HasPrefix(got, want) {
					t.Errorf("%s: got %q, want %q", header, got, want)
				}
			}
			if w.Header().Get("Access-Control-Allow-Origin") != "" {
				t.Error("another origin is let in")
			}
		})
	}
}

// The token is long, another one for each run, and stands in the fragment only.
func TestToken(t *testing.T) {
	a, b := guarded(t), guarded(t)
	if a.token == b.token || len(a.token) < 40 {
		t.Errorf("tokens %q and %q are not random", a.token, b.token)
	}
	if got, want := a.address("/"), "http://"+loopback+"/#token="+a.token; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The policy lets the page load nothing but its own files.
func TestPolicy(t *testing.T) {
	for part := range strings.SplitSeq(policy, "; ") {
		if _, from, _ := strings.Cut(part, " "); from != "'none'" && from != "'self'" {
			t.Errorf("%s allows more than the page's own files", part)
		}
	}
}

func (g *guard) with(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

func origin(of string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Origin", of) }
}

func both(a, b func(*http.Request)) func(*http.Request) {
	return func(r *http.Request) { a(r); b(r) }
}
