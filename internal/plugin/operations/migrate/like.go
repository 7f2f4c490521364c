package migrate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/afloat-project/afloat/internal/plugin/change"
)

// bookkeeping are annotations that belong to the old object and not to what its author wrote.
var bookkeeping = []string{corev1.LastAppliedConfigAnnotation, "deployment.kubernetes.io/revision",
	"deployment.kubernetes.io/revision-history",
	"deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas", recordKey}

// gates are readiness gates whose conditions only the project's controllers set.
var gates = []string{"InPlaceUpdateReady", "KruisePodReady"}

// createLike creates the target from the source.
func (c *command) createLike(ctx context.Context, source, target *side) error {
	if err := source.must(ctx); err != nil {
		return because(ctx, err)
	}
	if err := target.read(ctx); err != nil {
		return because(ctx, err)
	}
	if target.object != nil {
		return fmt.Errorf("%s exists already", target)
	}
	if err := settled(source); err != nil {
		return fmt.Errorf("nothing was done: %w", err)
	}
	if err := c.warn(ctx, source, target); err != nil {
		return because(ctx, err)
	}
	object, err := like(source, target, c.copy)
	if err != nil {
		return err
	}
	c.tellLost(source, target)
	created, err := change.Create(c, c.options, object)
	if err != nil {
		return fmt.Errorf("creating %s: %w", target, err)
	}
	return c.printer.PrintObj(created, c.objects)
}

// settled says why the pods of the source are not all those of its template: the target would roll out to all
// of them what a partition or a pause has kept to a few.
func settled(source *side) error {
	text := func(field string) string {
		value, _, _ := unstructured.NestedString(source.object.Object, "status", field)
		return value
	}
	replicas, updated := source.number(0, "status", "replicas"), source.number(0, "status", "updatedReplicas")
	switch {
	case !source.observed():
		return fmt.Errorf("the controller of %s has not seen its last change yet", source)
	case updated < replicas &&
		(source.mapping.GroupVersionKind.Kind == "Deployment" ||
			text("currentRevision") != text("updateRevision")):
		return fmt.Errorf("a rollout of %s is under way, or held by a partition or a pause: %d of %d pods are of its template, and all pods of the new "+
			"workload would be; finish or undo the rollout first", source, updated, replicas)
	}
	return nil
}

// tellLost tells what of the source has no place in the target.
func (c *command) tellLost(source, target *side) {
	if target.mapping.GroupVersionKind.Kind == "CloneSet" {
		if kind, _, _ := unstructured.NestedString(source.object.Object, "spec", "strategy",
			"type"); kind == "Recreate" {
			fmt.Fprintf(c.ErrOut,
				"Warning: %s has strategy Recreate, and %s replaces its pods a few at a time\n", source,
				target)
		}
		return
	}
	if paused(source.object) {
		fmt.Fprintf(c.ErrOut,
			"Warning: %s is paused, and %s is not: a Deployment that is created paused gets no pods\n",
			source, target)
	}
	spec, _, _ := unstructured.NestedMap(source.object.Object, "spec")
	if dropped := lost("CloneSet", spec); len(dropped) > 0 {
		fmt.Fprintf(c.ErrOut, "Warning: %s has no place for, and loses: %s\n", target,
			strings.Join(dropped, ", "))
	}
}

// paused tells whether a Deployment or a CloneSet, of whichever version, is paused.
func paused(object *unstructured.Unstructured) bool {
	for _, path := range [][]string{{"spec", "paused"}, {"spec", "updateStrategy", "paused"},
		{"spec", "updateStrategy", "rollingUpdate", "paused"}} {
		if value, _, _ := unstructured.NestedBool(object.Object, path...); value {
			return true
		}
	}
	return false
}

// described is an object of the target's kind with the name and what the source has of labels and
// annotations, but for those of tools.
func described(source, target *side) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(target.mapping.GroupVersionKind)
	object.SetNamespace(target.namespace)
	object.SetName(target.name)
	labels, annotations := source.object.GetLabels(), source.object.GetAnnotations()
	maps.DeleteFunc(labels, tracked)
	maps.DeleteFunc(annotations, tracked)
	for _, key := range bookkeeping {
		delete(annotations, key)
	}
	if len(labels) > 0 {
		object.SetLabels(labels)
	}
	if len(annotations) > 0 {
		object.SetAnnotations(annotations)
	}
	return object
}

// take copies fields that there are to the same or another place.
func take(from map[string]any, into map[string]any, paths ...[2][]string) {
	for _, path := range paths {
		if value, ok, _ := unstructured.NestedFieldCopy(from, path[0]...); ok && value != nil {
			_ = unstructured.SetNestedField(into, value, path[1]...)
		}
	}
}

// kept is a field that has the same place in both.
func kept(path ...string) [2][]string { return [2][]string{path, path} }

// like is a CloneSet like a Deployment, or the other way round.
func like(source, target *side, withReplicas bool) (*unstructured.Unstructured, error) {
	object := described(source, target)
	from := source.object.DeepCopy().Object
	take(from, object.Object, kept("spec", "selector"), kept("spec", "template"),
		kept("spec", "minReadySeconds"), kept("spec", "revisionHistoryLimit"),
		kept("spec", "progressDeadlineSeconds"))
	if object.GetKind() == "CloneSet" { // it has no deadline unless its author wants one
		unstructured.RemoveNestedField(object.Object, "spec", "progressDeadlineSeconds")
	}
	native := func(field string) []string { return []string{"spec", "strategy", "rollingUpdate", field} }
	own := func(field string) []string { return []string{"spec", "updateStrategy", "rollingUpdate", field} }
	cloneSet := target
	if source.mapping.GroupVersionKind.Kind == "CloneSet" {
		cloneSet = source
	}
	flat := cloneSet.mapping.GroupVersionKind.Version == "v1alpha1"
	if flat {
		own = func(field string) []string { return []string{"spec", "updateStrategy", field} }
	}
	pairs := [][2][]string{{native("maxUnavailable"), own("maxUnavailable")},
		{native("maxSurge"), own("maxSurge")}}
	if cloneSet == target { // not the other way round: the controller of Deployments makes no pods for one that is created paused
		pairs = append(pairs, [2][]string{{"spec", "paused"}, own("paused")})
	} else {
		for i := range pairs {
			pairs[i] = [2][]string{pairs[i][1], pairs[i][0]}
		}
		if claims, _, _ := unstructured.NestedSlice(from, "spec", "volumeClaimTemplates"); len(claims) > 0 {
			return nil, fmt.Errorf("%s has volumeClaimTemplates, which a Deployment cannot have", source)
		}
		withoutGates(object.Object)
	}
	take(from, object.Object, pairs...)
	if cloneSet == target {
		policy := "type"
		if !flat {
			policy = "podUpdatePolicy"
			_ = unstructured.SetNestedField(object.Object, "RollingUpdate", "spec", "updateStrategy", "type")
		}
		_ = unstructured.SetNestedField(object.Object, "ReCreate", own(policy)...)
	}
	replicas := int64(0)
	if withReplicas {
		replicas = source.replicas()
	}
	return object, unstructured.SetNestedField(object.Object, replicas, "spec", "replicas")
}

// withoutGates takes readiness gates out of a template that nobody would open.
func withoutGates(object map[string]any) {
	at := []string{"spec", "template", "spec", "readinessGates"}
	all, ok, _ := unstructured.NestedSlice(object, at...)
	if !ok {
		return
	}
	left := slices.DeleteFunc(all, func(raw any) bool {
		gate, _ := raw.(map[string]any)
		name, _, _ := unstructured.NestedString(gate, "conditionType")
		return slices.Contains(gates, name)
	})
	if len(left) == 0 {
		unstructured.RemoveNestedField(object, at...)
		return
	}
	_ = unstructured.SetNestedSlice(object, left, at...)
}
