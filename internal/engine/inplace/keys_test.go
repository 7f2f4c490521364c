package inplace

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
)

// TestKeysOfTheRecord shows ASTS-176: what managers of the reference wrote is read whole and written in the
// same words; the keys without prefix are read, and that of the state goes when it is written.
func TestKeysOfTheRecord(t *testing.T) {
	const state = `{"revision":"web-2","updateTimestamp":"2026-01-01T11:00:00Z","lastContainerStatuses":{"nginx":{"imageID":"sha-1"}},` +
		`"updateEnvFromMetadata":true,"updateResources":true,"updateImages":true,"nextContainerImages":{"nginx":"nginx:2"},` +
		`"nextContainerRefMetadata":{"nginx":{"labels":{"a":"b"},"annotations":{"c":"d"}}},` +
		`"nextContainerResources":{"nginx":{"limits":{"cpu":"1"}}},"preCheckBeforeNext":{"containersRequiredReady":["injected"]},` +
		`"containerBatchesRecord":[{"timestamp":"2026-01-01T11:00:00Z","containers":["injected"]}]}`
	const grace = `{"revision":"web-2","containerImages":{"nginx":"nginx:2"},"graceSeconds":30}`
	for _, keys := range [][2]string{{"apps.kruise.io/inplace-update-state", "apps.kruise.io/inplace-update-grace"},
		{"inplace-update-state", "inplace-update-grace"}} {
		pod := webPod(annotated(keys[0], state), annotated(keys[1], grace))
		read, err := StateOf(pod)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(state, asText(t, read)); diff != "" {
			t.Errorf("%s: the record that is read (-want +got):\n%s", keys[0], diff)
		}
		held, err := GraceOf(pod)
		if err != nil {
			t.Fatalf("%s: reading the grace period: %v", keys[1], err)
		}
		if !InGrace(pod) {
			t.Fatalf("%s: the pod is not in its grace period: %v", keys[1], held)
		}
		if diff := cmp.Diff(grace, asText(t, held)); diff != "" {
			t.Errorf("%s: the grace period that is read (-want +got):\n%s", keys[1], diff)
		}
		for name, write := range map[string]func(*corev1.Pod, time.Time) (*podpatch.Patch, error){"Start": to("web-3", toImage("nginx:3"),
			0).Start, "Continue": Continue} {
			pod := webPod(annotated(keys[0], state), annotated(keys[1], grace), labelled(pub.ControllerRevisionHash, "web-2"))
			patch, err := write(pod, noon)
			if err != nil {
				t.Fatal(err)
			}
			after := applied(t, pod, patch).Annotations
			if _, ok := after["inplace-update-state"]; ok {
				t.Errorf("%s of %s leaves the key without prefix: %v", name, keys[0], after)
			}
			if after["apps.kruise.io/inplace-update-state"] == "" {
				t.Errorf("%s of %s writes no state under the key with prefix: %v", name, keys[0], after)
			}
		}
	}
}

func asText(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
