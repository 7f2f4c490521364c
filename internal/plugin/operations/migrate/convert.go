package migrate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/afloat-project/afloat/api/pub"
)

// shared lists, by kind, the fields that have the same path in both APIs.
var shared = map[string][]string{
	"StatefulSet": {"replicas", "selector", "template", "volumeClaimTemplates", "serviceName",
		"podManagementPolicy", "revisionHistoryLimit", "persistentVolumeClaimRetentionPolicy", "ordinals",
		"updateStrategy.type", "updateStrategy.rollingUpdate.partition",
		"updateStrategy.rollingUpdate.maxUnavailable"},
	// In v1alpha1, a CloneSet has these fields one level higher. Its update type and podUpdatePolicy mean
	// nothing to a Deployment, so they do not count as lost.
	"CloneSet": {"replicas", "selector", "template", "minReadySeconds", "revisionHistoryLimit",
		"progressDeadlineSeconds", "updateStrategy.type", "updateStrategy.maxUnavailable",
		"updateStrategy.maxSurge", "updateStrategy.paused", "updateStrategy.rollingUpdate.maxUnavailable",
		"updateStrategy.rollingUpdate.maxSurge", "updateStrategy.rollingUpdate.paused",
		"updateStrategy.rollingUpdate.podUpdatePolicy"},
	"DaemonSet": {"selector", "template", "minReadySeconds", "revisionHistoryLimit", "updateStrategy.type",
		"updateStrategy.rollingUpdate.maxUnavailable", "updateStrategy.rollingUpdate.maxSurge"},
}

var (
	nativeMinReady = []string{"spec", "minReadySeconds"}
	ownMinReady    = []string{"spec", "updateStrategy", "rollingUpdate", "minReadySeconds"}
)

// converted returns the target that takes over the pods of the source, and the fields that are dropped. Its
// template is exactly that of the source, because any difference would make another revision.
func converted(source, target *side) (object *unstructured.Unstructured, dropped []string, err error) {
	object = described(source, target)
	spec, _, err := unstructured.NestedMap(source.object.Object, "spec")
	if err != nil {
		return nil, nil, err
	}

	kind, toOwn := object.GetKind(), target.mapping.GroupVersionKind.Group == ownGroup
	if toOwn {
		object.Object["spec"] = spec
		if kind == "StatefulSet" {
			unstructured.RemoveNestedField(object.Object, nativeMinReady...)
			take(source.object.Object, object.Object, [2][]string{nativeMinReady, ownMinReady})
			if err := fits(object); err != nil {
				return nil, nil, err
			}
		}
	} else {
		if err := leaves(source); err != nil {
			return nil, nil, err
		}
		object.Object["spec"] = map[string]any{}
		for _, field := range shared[kind] {
			path := append([]string{"spec"}, strings.Split(field, ".")...)
			take(source.object.Object, object.Object, kept(path...))
		}
		if kind == "StatefulSet" {
			take(source.object.Object, object.Object, [2][]string{ownMinReady, nativeMinReady})
		}
		dropped = lost(kind, spec)
		annotations := object.GetAnnotations()
		delete(annotations, pub.V1beta1OnlyFields)
		object.SetAnnotations(annotations)
	}

	withoutClaimStatus(object)
	return object, dropped, nil
}

// withoutClaimStatus removes the status that the API server adds to claim templates.
func withoutClaimStatus(object *unstructured.Unstructured) {
	claims, ok, _ := unstructured.NestedSlice(object.Object, "spec", "volumeClaimTemplates")
	if !ok {
		return
	}
	for _, raw := range claims {
		if claim, ok := raw.(map[string]any); ok {
			delete(claim, "status")
		}
	}
	_ = unstructured.SetNestedSlice(object.Object, claims, "spec", "volumeClaimTemplates")
}

// fits returns an error if a StatefulSet uses a field that v1alpha1 does not have, and removes unused ones.
// The target is of v1alpha1 only if the server does not serve v1beta1.
func fits(object *unstructured.Unstructured) error {
	if object.GroupVersionKind().Version != "v1alpha1" {
		return nil
	}
	policy, _, _ := unstructured.NestedStringMap(object.Object, "spec",
		"persistentVolumeClaimRetentionPolicy")
	if number(object, 0, "spec", "ordinals", "start") != 0 || policy["whenDeleted"] == "Delete" ||
		policy["whenScaled"] == "Delete" {
		return fmt.Errorf("the server has StatefulSets of v1alpha1 only, which know neither ordinals nor persistentVolumeClaimRetentionPolicy")
	}
	unstructured.RemoveNestedField(object.Object, "spec", "ordinals")
	unstructured.RemoveNestedField(object.Object, "spec", "persistentVolumeClaimRetentionPolicy")
	return nil
}

// leaves returns an error if Kubernetes' own controller could not keep the pods of the source as they are.
func leaves(source *side) error {
	reserved, _, _ := unstructured.NestedSlice(source.object.Object, "spec", "reserveOrdinals")
	if text := source.object.GetAnnotations()[pub.V1beta1OnlyFields]; text != "" && len(reserved) == 0 {
		only := struct {
			ReserveOrdinals []any `json:"reserveOrdinals"`
		}{}
		if err := json.Unmarshal([]byte(text), &only); err != nil {
			return fmt.Errorf("annotation %s of %s: %w", pub.V1beta1OnlyFields, source, err)
		}
		reserved = only.ReserveOrdinals
	}

	if len(reserved) > 0 {
		return fmt.Errorf("%s has reserveOrdinals, which a StatefulSet of Kubernetes does not know: it would create and delete pods",
			source)
	}

	all, _, _ := unstructured.NestedSlice(source.object.Object, "spec", "template", "spec", "readinessGates")
	for _, raw := range all {
		gate, _ := raw.(map[string]any)
		if name, _, _ := unstructured.NestedString(gate, "conditionType"); slices.Contains(gates, name) {
			return fmt.Errorf("the template of %s has readiness gate %s: pods that Kubernetes makes would never be ready; take it out first",
				source, name)
		}
	}

	return nil
}

// lost returns the set fields of a spec for which the target has no place.
func lost(kind string, spec map[string]any) []string {
	known := slices.Concat(shared[kind], []string{strings.Join(ownMinReady[1:], ".")})
	var fields []string
	var walk func(prefix string, all map[string]any)
	walk = func(prefix string, all map[string]any) {
		for name, value := range all {
			path := prefix + name
			below, isMap := value.(map[string]any)
			switch {
			case slices.Contains(known, path) || empty(value):
			case isMap &&
				slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(k, path+".") }):
				walk(path+".", below)
			default:
				fields = append(fields, path)
			}
		}
	}

	walk("", spec)
	slices.Sort(fields)
	return fields
}

// empty reports whether a field means the same as its absence, such as a default of the API server.
func empty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		for _, member := range v {
			if !empty(member) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	}

	return value == false || value == int64(0) || value == ""
}
