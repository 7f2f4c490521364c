package broadcastjob

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/afloat-project/afloat/internal/engine/podtemplate"
)

func parsed(t *testing.T, text string) Document {
	t.Helper()
	var document Document
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	return document
}

// defaulted is a job as the webhook leaves it.
func defaulted(t *testing.T, given, old string, r podtemplate.Request) Document {
	t.Helper()
	request := DefaultRequest{Request: r, New: parsed(t, given), Now: planTime}
	if old != "" {
		request.Old = parsed(t, old)
	}
	operations, err := Default(request)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(operations)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		t.Fatal(err)
	}
	after, err := patch.Apply([]byte(given))
	if err != nil {
		t.Fatal(err)
	}
	return parsed(t, string(after))
}

// TestDefaults shows BJ-011, BJ-012 and BJ-013; BJ-014: restartLimit gets none. What the user wrote stays,
// unknown fields included.
func TestDefaults(t *testing.T) {
	const all = `"parallelism":2147483647,"completionPolicy":{"type":"Always"},"failurePolicy":{"type":"FailFast"}`
	for name, test := range map[string]struct{ given, want string }{
		"nothing":     {`{"spec":{}}`, `{"spec":{` + all + `}}`},
		"empty texts": {`{"spec":{"completionPolicy":{"type":""},"failurePolicy":{"type":""}}}`, `{"spec":{` + all + `}}`},
		"null":        {`{"spec":{"parallelism":null,"completionPolicy":null}}`, `{"spec":{` + all + `}}`},
		"all of it":   {`{"spec":{"parallelism":0,"completionPolicy":{"type":"Never","x":1},"failurePolicy":{"type":"Pause","restartLimit":2}}}`, ""},
		"a part": {`{"spec":{"parallelism":"20%","failurePolicy":{"restartLimit":3},"more":[1]}}`,
			`{"spec":{"parallelism":"20%","completionPolicy":{"type":"Always"},"failurePolicy":{"type":"FailFast","restartLimit":3},"more":[1]}}`},
		"no spec": {`{"metadata":{}}`, `{"metadata":{}}`},
	} {
		want := test.want
		if want == "" {
			want = test.given
		}
		if diff := cmp.Diff(parsed(t, want), defaulted(t, test.given, "", podtemplate.Request{})); diff != "" {
			t.Errorf("%s: defaults (-want +got):\n%s", name, diff)
		}
	}
}

// TestTemplatesAreCompleted shows what is asked for templates (BJ-015 (part)): Always for images without a
// policy, host ports with the gate alone.
func TestTemplatesAreCompleted(t *testing.T) {
	const given = `{"spec":{"template":{"spec":{"hostNetwork":true,"containers":[{"name":"a","image":"a:1","ports":[{"containerPort":80}]}]}}}}`
	for _, ports := range []bool{true, false} {
		request := podtemplate.Request{HostPorts: ports, Complete: func(template Document) (Document, error) {
			complete := runtime.DeepCopyJSON(template)
			complete["spec"].(Document)["dnsPolicy"] = "ClusterFirst"
			return complete, nil
		}}
		spec := defaulted(t, given, "", request)["spec"].(Document)["template"].(Document)["spec"].(Document)
		container := spec["containers"].([]any)[0].(Document)
		port := container["ports"].([]any)[0].(Document)
		if container["imagePullPolicy"] != "Always" {
			t.Errorf(`container imagePullPolicy: got %v, want %q; host ports %t: %v`, container["imagePullPolicy"],
				"Always", ports, spec)
		}
		if spec["dnsPolicy"] != "ClusterFirst" {
			t.Errorf(`spec dnsPolicy: got %v, want %q; host ports %t: %v`, spec["dnsPolicy"], "ClusterFirst", ports,
				spec)
		}
		if (port["hostPort"] == float64(80)) != ports {
			t.Errorf(`the port of the node is 80: got %t, want %t; host ports %t: %v`,
				port["hostPort"] == float64(80), ports, ports, spec)
		}
	}
	_, err := Default(DefaultRequest{New: parsed(t, given), Request: podtemplate.Request{Complete: func(Document) (Document, error) {
		return nil, errors.New("no answer")
	}}})
	if err == nil {
		t.Error("no error")
	}
}

// TestResumedIsNoted shows BJ-094 (part): when spec.paused is unset, the object says when, whatever else it
// says.
func TestResumedIsNoted(t *testing.T) {
	job := func(paused, policy, annotations string) string {
		return fmt.Sprintf(`{"metadata":{"name":"a"%s},"spec":{"paused":%s,"failurePolicy":{"type":%q}}}`, annotations, paused, policy)
	}
	const other, before = `,"annotations":{"a":"b"}`, `,"annotations":{"apps.kruise.io/broadcastjob-resumed":"before"}`
	for name, test := range map[string]struct {
		given, old string
		want       string
	}{
		"resumed":                     {job("false", "Pause", ""), job("true", "Pause", ""), planTime.Format(time.RFC3339)},
		"with annotations":            {job("false", "Pause", other), job("true", "Pause", ""), planTime.Format(time.RFC3339)},
		"again":                       {job("false", "Pause", before), job("true", "Pause", before), planTime.Format(time.RFC3339)},
		"paused still":                {job("true", "Pause", ""), job("true", "Pause", ""), ""},
		"was not paused":              {job("false", "Pause", ""), job("false", "Pause", ""), ""},
		"failures do not pause it":    {job("false", "Continue", ""), job("true", "Continue", ""), ""},
		"created":                     {job("false", "Pause", ""), "", ""},
		"an update of something else": {job("false", "Pause", before), job("false", "Pause", before), "before"},
	} {
		metadata := defaulted(t, test.given, test.old, podtemplate.Request{})["metadata"].(Document)
		annotations, _ := metadata["annotations"].(Document)
		if got, _ := annotations["apps.kruise.io/broadcastjob-resumed"].(string); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if name == "with annotations" && annotations["a"] != "b" {
			t.Error("annotations are lost")
		}
	}
}
