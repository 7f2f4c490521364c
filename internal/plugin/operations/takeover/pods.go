package takeover

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// fingerprint is the part of a pod that must not change.
type fingerprint struct {
	UID      string `json:"uid"`
	Restarts int64  `json:"restarts"`
	Spec     string `json:"spec"`
}

// fingerprints returns the fingerprints of the pods that a manager is concerned with: those of the project's
// workloads, with sidecars of SidecarSets, or placed by WorkloadSpreads.
func (t *takeover) fingerprints(ctx context.Context) (map[string]fingerprint, error) {
	pods := map[string]fingerprint{}
	err := installation.Each(ctx, t.client, installation.Pods, func(pod *unstructured.Unstructured) error {
		if !concerns(pod) || pod.GetDeletionTimestamp() != nil {
			return nil
		}
		spec, err := json.Marshal(pod.Object["spec"])
		if err != nil {
			return fmt.Errorf("encoding pod %s: %w", pod.GetName(), err)
		}
		sum := sha256.Sum256(spec)
		f := fingerprint{UID: string(pod.GetUID()), Spec: hex.EncodeToString(sum[:8])}
		for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
			for _, status := range installation.Maps(pod.Object, "status", list) {
				restarts, _, _ := unstructured.NestedInt64(status, "restartCount")
				f.Restarts += restarts
			}
		}
		pods[pod.GetNamespace()+"/"+pod.GetName()] = f
		return nil
	})

	return pods, err
}

func concerns(pod *unstructured.Unstructured) bool {
	annotations := pod.GetAnnotations()
	_, injected := annotations[pub.SidecarSetInjectedList]
	_, placed := annotations[pub.MatchedWorkloadSpread]
	return injected || placed || slices.ContainsFunc(installation.Maps(pod.Object, "metadata",
		"ownerReferences"), func(owner map[string]any) bool {
		version, _ := owner["apiVersion"].(string)
		return strings.HasPrefix(version, "apps.kruise.io/")
	})
}

// changes describes what has changed between two sets of fingerprints.
func changes(before, after map[string]fingerprint) []string {
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		was, is := before[name], after[name]
		switch {
		case is.UID == "":
			changed = append(changed, name+" is gone")
		case is.UID != was.UID:
			changed = append(changed, name+" is another pod")
		case is.Restarts != was.Restarts:
			changed = append(changed,
				fmt.Sprintf("%s: %s more", name, wording.Count(int(is.Restarts-was.Restarts), "restart")))
		case is.Spec != was.Spec:
			changed = append(changed, name+" has another spec")
		}
	}

	for _, name := range slices.Sorted(maps.Keys(after)) {
		if _, had := before[name]; !had {
			changed = append(changed, name+" is new")
		}
	}

	return changed
}
