package pub

import "encoding/json"

// Keys of WorkloadSpreads.
const (
	// MatchedWorkloadSpread on a pod is its Placement, as JSON (WS-096).
	MatchedWorkloadSpread = "apps.kruise.io/matched-workloadspread"
	// IgnorePatchExistingPods: "true" on a WorkloadSpread, in any case, leaves the metadata of pods that it finds as they are (WS-144).
	IgnorePatchExistingPods = "workloadspread.kruise.io/ignore-patch-existing-pods-metadata"
)

// Placement says to which subset of which WorkloadSpread a pod belongs. The order of the fields is that of the annotation (WS-096).
type Placement struct {
	// Name of the WorkloadSpread, in the namespace of the pod.
	Name string `json:"name"`
	// Subset by its name.
	Subset string `json:"subset"`
	// UID is the key of the pod's booking if its name was not known (WS-076).
	UID string `json:"uid,omitempty"`
}

// ParsePlacement reads the annotation of a pod; it returns false if there is none or it is invalid (WS-141).
func ParsePlacement(annotations map[string]string) (Placement, bool) {
	text, ok := annotations[MatchedWorkloadSpread]
	if !ok {
		return Placement{}, false
	}
	var p Placement
	if json.Unmarshal([]byte(text), &p) != nil || p.Name == "" || p.Subset == "" {
		return Placement{}, false
	}
	return p, true
}

// String is the value of the annotation.
func (p Placement) String() string {
	text, _ := json.Marshal(p) // strings always encode
	return string(text)
}
