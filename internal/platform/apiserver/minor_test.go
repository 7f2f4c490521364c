package apiserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
)

// OPS-033: the manager starts with any version of the server; if the version has no number, it does not use
// features of newer servers.
func TestVersionsOfTheServer(t *testing.T) {
	said := func(major, minor, git string) string {
		return fmt.Sprintf(`{"major":%q,"minor":%q,"gitVersion":%q}`, major, minor, git)
	}
	for answer, want := range map[string]uint{
		said("1", "36", "v1.36.3"):                         36,
		said("1", "28+", "v1.28+gke.1"):                    28,
		said("1", "30+", "v1.30.4-eks-a737599"):            30,
		said("1", "31", "v1.31.0-alpha.0+dirty"):           31,
		said("1", "31+", ""):                               31,
		said("1", "31", "dev"):                             31,
		said("1", "31", "v1"):                              31,
		said("1", "31", "v0.0.0-master+$Format:%H$"):       31,
		said("", "", ""):                                   0,
		said("2", "1", "v2.1.0"):                           0,
		said("1", "-1", "dev"):                             0,
		said("1", "99999999999999999999999999999", "v1.x"): 0,
		`{}`:     0,
		`[]`:     0,
		`a page`: 0,
		``:       0,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(answer))
		}))
		minor, err := Minor(t.Context(), &rest.Config{Host: server.URL})
		server.Close()
		if err != nil {
			t.Errorf("version of a server that answers %s: %v", answer, err)
		}
		if minor != want {
			t.Errorf("minor version of a server that answers %s: got %d, want %d", answer, minor, want)
		}
	}
	if _, err := Minor(t.Context(), &rest.Config{Host: "http://127.0.0.1:1"}); err == nil {
		t.Error("a server that does not answer has no version")
	}
}
