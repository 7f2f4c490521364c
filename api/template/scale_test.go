package template

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/cputime"
)

// A template with thousands of variables of which each gets a default, as in a SidecarSet, is merged quickly. If the time grew with the
// square of their number, a webhook would take minutes.
func TestManyChangedItemsAreMergedInLinearTime(t *testing.T) {
	const count = 8000
	template := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "a", "env": []any{}}}}}
	var env []any
	for i := range count {
		env = append(env, map[string]any{"name": fmt.Sprintf("V%d", i), "future": i,
			"valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": "metadata.name"}}})
	}
	template["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["env"] = env
	text, err := json.Marshal(template)
	if err != nil {
		t.Fatal(err)
	}
	var pod PodTemplate
	if err := json.Unmarshal(text, &pod); err != nil {
		t.Fatal(err)
	}
	for i := range pod.Spec.Containers[0].Env {
		pod.Spec.Containers[0].Env[i].ValueFrom.FieldRef.APIVersion = "v1"
	}
	pod.Spec.Containers[0].Env = append([]corev1.EnvVar{{Name: "new"}}, pod.Spec.Containers[0].Env...)
	spent := cputime.Start(t)
	if text, err = json.Marshal(pod); err != nil {
		t.Fatal(err)
	}
	if took := spent(); took > 10*time.Second { // about 0.1 s; it was 40 s
		t.Errorf("%d items took %s", count, took)
	}
	var merged struct {
		Spec struct {
			Containers []struct {
				Env []struct {
					Name      string
					Future    *int
					ValueFrom *corev1.EnvVarSource
				}
			}
		}
	}
	if err := json.Unmarshal(text, &merged); err != nil {
		t.Fatal(err)
	}
	got := merged.Spec.Containers[0].Env
	if len(got) != count+1 || got[0].Name != "new" {
		t.Fatalf("%d items", len(got))
	}
	for i, v := range got[1:] {
		if v.Name != fmt.Sprintf("V%d", i) || v.Future == nil || *v.Future != i || v.ValueFrom.FieldRef.APIVersion != "v1" {
			t.Fatalf("item %d: %+v", i, v)
		}
	}
}
