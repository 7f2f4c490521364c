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

// bookkeeping lists annotations that describe the old object and were not written by its author.
var bookkeeping = []string{corev1.LastAppliedConfigAnnotation, "deployment.kubernetes.io/revision",
	"deployment.kubernetes.io/revision-history",
	"deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas", recordKey}

// gates lists the readiness gates whose conditions only the project's controllers set.
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

// settled returns an error if not all pods of the source are of its current template. The target would roll
// out to all pods what a partition or a pause has limited to a few.
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

// tellLost warns about settings of the source that have no place in the target.
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

// paused reports whether a Deployment or a CloneSet of any version is paused.
func paused(object *unstructured.Unstructured) bool {
	for _, path := range [][]string{{"spec", "paused"}, {"spec", "updateStrategy", "paused"},
		{"spec", "updateStrategy", "rollingUpdate", "paused"}} {
		if value, _, _ := unstructured.NestedBool(object.Object, path...); value {
			return true
		}
	}
	return false
}

// described returns an object of the target's kind with its name, and with the labels and annotations of the
// source except those of tools.
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

// take copies existing fields, to the same or to another path.
func take(from map[string]any, into map[string]any, paths ...[2][]string) {
	for _, path := range paths {
		if value, ok, _ := unstructured.NestedFieldCopy(from, path[0]...); ok && value != nil {
			_ = unstructured.SetNestedField(into, value, path[1]...)
		}
	}
}

// kept returns a field that has the same path in both objects.
func kept(path ...string) [2][]string { return [2][]string{path, path} }

// like returns a CloneSet that matches a Deployment, or a Deployment that matches a CloneSet.
func like(source, target *side, withReplicas bool) (*unstructured.Unstructured, error) {
	object := described(source, target)
	from := source.object.DeepCopy().Object
	take(from, object.Object, kept("spec", "selector"), kept("spec", "template"),
		kept("spec", "minReadySeconds"), kept("spec", "revisionHistoryLimit"),
		kept("spec", "progressDeadlineSeconds"))
	// A CloneSet has no deadline unless its author wants one.
	if object.GetKind() == "CloneSet" {
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
	// Pausing is not copied the other way round, because the Deployment controller makes no pods for a
	// Deployment that is created paused.
	if cloneSet == target {
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

// withoutGates removes those readiness gates from a template whose conditions nobody would set.
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
