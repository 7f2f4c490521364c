package controller

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// WS-144: a subset's patch names a UID or a version of its own. A pod that is adopted gets metadata of that patch in a
// write that is guarded by the pod's UID and version. With another UID each write would be a conflict, which is tried
// again for ever; with null nothing would be guarded.
func TestAPatchDoesNotReplaceTheGuardOfAnAdoption(t *testing.T) {
	for _, patch := range []string{`{"metadata":{"uid":"another","labels":{"a":"b"}}}`, `{"metadata":{"resourceVersion":"1"}}`,
		`{"metadata":{"uid":null,"resourceVersion":null}}`} {
		spread := workloadspreadtest.Spread(workloadspreadtest.Subset("a", nil, workloadspreadtest.Patches(patch)))
		pod := workloadspreadtest.Pod("p")
		pod.UID, pod.ResourceVersion = "uid-p", "42"
		plan := workloadspread.Make(workloadspread.Snapshot{Spread: spread, Target: &workloadspread.Target{Exists: true},
			Pods: []*corev1.Pod{pod}, Fits: map[types.UID][]workloadspread.Fit{pod.UID: {{Subset: 0}}}, Now: workloadspreadtest.At(0).Time})
		if len(plan.Writes) != 1 || plan.Writes[0].Adopt != "a" {
			t.Fatalf("%s: the pod is not adopted: %+v", patch, plan)
		}
		body, err := reconcile.MergePatch(pod, plan.Writes[0].Metadata, nil)
		if err != nil {
			t.Fatal(err)
		}
		var sent struct{ Metadata map[string]any }
		if err := json.Unmarshal(body, &sent); err != nil {
			t.Fatal(err)
		}
		if sent.Metadata["uid"] != "uid-p" || sent.Metadata["resourceVersion"] != "42" {
			t.Errorf("%s: the write is guarded by UID %v and version %v, want uid-p and 42", patch, sent.Metadata["uid"],
				sent.Metadata["resourceVersion"])
		}
	}
}
