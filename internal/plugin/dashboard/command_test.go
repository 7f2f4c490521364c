package dashboard

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
	"github.com/afloat-project/afloat/internal/plugin/plugintest"
)

// The command serves a page on loopback to who knows its address, until it is interrupted. OPS-220.
func TestCommand(t *testing.T) {
	t.Parallel()
	api := plugintest.New(t, "v1beta1", web, webPod, node)
	out, in := io.Pipe()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	ended := make(chan error, 1)
	o := &options{
		IOStreams:        genericiooptions.IOStreams{Out: in, ErrOut: io.Discard},
		managerNamespace: installation.Namespace,
	}
	go func() { ended <- o.run(ctx, api.Factory(t), []string{"clone/web"}) }()

	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	page, err := url.Parse(strings.TrimSpace(strings.TrimPrefix(line, "The page is at ")))
	if err != nil {
		t.Fatal(err)
	}
	token, ok := strings.CutPrefix(page.Fragment, "token=")
	if !ok || page.Path != "/workload/clonesets.apps.kruise.io/default/web" || page.Hostname() != "127.0.0.1" {
		t.Fatalf("it printed %s", page)
	}

	ask := func(path, token, host, origin string) (status int, policy string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+page.Host+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		r.Header.Set("Origin", origin)
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode, response.Header.Get("Content-Security-Policy")
	}
	for name, test := range map[string]struct {
		path, token, host, origin string
		want                      int
	}{
		"the page":                {page.Path, "", page.Host, "http://" + page.Host, http.StatusOK},
		"data":                    {"/api/session", token, page.Host, "http://" + page.Host, http.StatusOK},
		"by the name localhost":   {"/api/session", token, "localhost:" + page.Port(), "http://localhost:" + page.Port(), http.StatusOK},
		"without the token":       {"/api/session", "", page.Host, "http://" + page.Host, http.StatusUnauthorized},
		"by a name of somebody":   {"/api/session", token, "evil.example:" + page.Port(), "http://evil.example:" + page.Port(), http.StatusForbidden},
		"from a page of somebody": {"/api/session", token, page.Host, "https://evil.example", http.StatusForbidden},
	} {
		if status, got := ask(test.path, test.token, test.host, test.origin); status != test.want || got != policy {
			t.Errorf("%s: got %d, want %d; the policy is %q", name, status, test.want, got)
		}
	}

	// Another address of this machine, if it has one, is not answered.
	addresses, _ := net.InterfaceAddrs()
	for _, address := range addresses {
		if of, ok := address.(*net.IPNet); ok && !of.IP.IsLoopback() && of.IP.To4() != nil {
			if c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", net.JoinHostPort(of.IP.String(), page.Port())); err == nil {
				_ = c.Close()
				t.Errorf("%s is answered", of.IP)
			}
		}
	}

	for _, request := range api.Requests() {
		if !strings.Contains(request.String(), "selfsubject") {
			t.Errorf("it wrote: %s", request)
		}
	}
	interrupt()
	if err := <-ended; err != nil {
		t.Errorf("after it was interrupted: %v", err)
	}
}
