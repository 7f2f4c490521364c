package apiserver

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// Whether pods can be resized depends on the resources of the API server, not on its version (IPU-113), and
// on the gates (IPU-040, IPU-094).
func TestResizeDependsOnTheResourcesOfTheAPIServer(t *testing.T) {
	tests := map[string]struct {
		gates, resources string
		want             inplace.Options
	}{
		"IPU-113 the server has pods/resize": {"", `{"name":"pods"},{"name":"pods/resize"}`,
			inplace.Options{EnvFromMetadata: true, Resize: true}},
		"IPU-113 the server has it not": {"", `{"name":"pods"}`, inplace.Options{EnvFromMetadata: true}},
		"IPU-040 the gate is off": {"InPlaceWorkloadVerticalScaling=false", `{"name":"pods/resize"}`,
			inplace.Options{EnvFromMetadata: true}},
		"IPU-094 no environment": {"InPlaceUpdateEnvFromMetadata=false", `{"name":"pods/resize"}`,
			inplace.Options{Resize: true}},
		"IPU-091 no node daemon, so the same": {"KruiseDaemon=false", `{"name":"pods/resize"}`, inplace.Options{Resize: true}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[` + tt.resources +
					`]}`))
			}))
			defer server.Close()
			gates, err := features.Parse(tt.gates)
			if err != nil {
				t.Fatal(err)
			}
			got, err := InPlace(&rest.Config{Host: server.URL}, gates)
			if err != nil {
				t.Errorf("asking the API server: %v", err)
			}
			if got != tt.want {
				t.Errorf("what updates in place can do: got %+v, want %+v", got, tt.want)
			}
		})
	}
}
