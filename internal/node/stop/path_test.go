package stop

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The path of a httpGet hook is asked for as it is written, as kubelet does: an escaped slash stays escaped, and a
// path that is no URL is a path.
func TestPathOfAHook(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.RequestURI }))
	t.Cleanup(server.Close)
	host, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	n, _ := strconv.Atoi(port)
	for path, want := range map[string]string{"/queues/a%2Fb/drain": "/queues/a%2Fb/drain", "/x?y=1": "/x?y=1", "/done%": "/done%25"} {
		got = ""
		err := get(t.Context(), &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt(n)}, Request{PodIP: host})
		if err != nil || got != want {
			t.Errorf("hook with path %s: asked for %q, want %q (error %v)", path, got, want, err)
		}
	}
}
