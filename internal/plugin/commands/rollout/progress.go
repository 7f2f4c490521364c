package rollout

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubectl/pkg/polymorphichelpers"

	numbers "github.com/afloat-project/afloat/internal/engine/rollout"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/plugin/workload"
)

// Progress describes how far a rollout is.
type Progress struct {
	// Line describes it in words.
	Line string
	// Done is true if nothing more is to come.
	Done bool
	// Updated is the number of pods of the new revision, and Target the number that it should reach.
	Updated, Target int
}

// ProgressOf determines the progress of the rollout of an object. It returns an error if the rollout has
// failed, or if its progress cannot be known.
func ProgressOf(object *unstructured.Unstructured) (Progress, error) {
	switch kind := workload.Kind(object); kind {
	case workloadkind.Deployment, workloadkind.StatefulSet, workloadkind.DaemonSet:
		viewer, err := polymorphichelpers.StatusViewerFor(kind)
		if err != nil {
			return Progress{}, err
		}

		line, done, err := viewer.Status(object, 0)
		c := census{
			target:  number(object, 0, "status", "desiredNumberScheduled"),
			updated: number(object, 0, "status", "updatedNumberScheduled"),
		}
		if kind != workloadkind.DaemonSet {
			c.target = number(object, 1, "spec", "replicas") -
				number(object, 0, "spec", "updateStrategy", "rollingUpdate", "partition")
			c.updated = number(object, 0, "status", "updatedReplicas")
		}
		return Progress{
			Line:    strings.TrimSpace(line),
			Done:    done,
			Updated: c.updated,
			Target:  max(c.target, 0),
		}, err
	case workloadkind.CloneSet, workloadkind.AdvancedStatefulSet, workloadkind.AdvancedDaemonSet,
		workloadkind.UnitedDeployment:
		c, err := count(object)
		if err != nil {
			return Progress{}, err
		}

		p, err := c.progress(object)
		p.Updated, p.Target = c.updated, c.target
		return p, err
	}

	return Progress{}, fmt.Errorf("a %s has no rollout status", object.GetKind())
}

// census holds the numbers of pods of an object: the desired pods, how many of them should have the new
// revision, and how many pods of the new revision exist, are ready and are available.
type census struct{ replicas, target, updated, ready, available int }

// count reads the numbers from the status of an object.
func count(object *unstructured.Unstructured) (census, error) {
	strategy, _, _ := unstructured.NestedString(object.Object, "spec", "updateStrategy", "type")
	if strategy == "OnDelete" {
		return census{}, fmt.Errorf(
			"rollout status is only available for RollingUpdate strategy type, and this one is %s", strategy)
	}

	rolling, old := workloadkind.Path{"spec", "updateStrategy", "rollingUpdate"},
		object.GroupVersionKind().Version == "v1alpha1"
	c := census{
		replicas:  number(object, 1, "spec", "replicas"),
		updated:   number(object, 0, "status", "updatedReplicas"),
		ready:     number(object, 0, "status", "updatedReadyReplicas"),
		available: number(object, 0, "status", "updatedAvailableReplicas"),
	}

	resolve := numbers.Partition
	switch workload.Kind(object) {
	case workloadkind.CloneSet:
		if old {
			rolling = workloadkind.Path{"spec", "updateStrategy"}
		}
	case workloadkind.AdvancedStatefulSet:
		if old {
			// The status does not contain how many of the updated pods are ready.
			// Assume that all other pods are ready.
			others := number(object, 0, "status", "replicas") - c.updated
			c.ready = number(object, 0, "status", "readyReplicas") - others
			c.available = number(object, 0, "status", "availableReplicas") - others
		}
	case workloadkind.AdvancedDaemonSet:
		c.replicas, c.updated = number(object, 0, "status", "desiredNumberScheduled"),
			number(object, 0, "status", "updatedNumberScheduled")
		c.ready = number(object, 0, "status", "numberReady") - (c.replicas - c.updated)
		c.available = number(object, 0, "status", "numberAvailable") - (c.replicas - c.updated)
		if _, ok, _ := unstructured.NestedMap(object.Object, rolling.Child("selector")...); ok {
			return c, fmt.Errorf(
				"rollout status is not available while only nodes that match a selector are updated")
		}
		resolve = func(partition *intstr.IntOrString, replicas int) (int, error) {
			if partition == nil {
				return 0, nil
			}
			return numbers.Scaled(*partition, replicas, false)
		}
	case workloadkind.UnitedDeployment:
		c.replicas = number(object, number(object, 0, "status", "replicas"), "spec", "replicas")
		c.target = c.replicas - kept(object)
		c.available = c.ready
		return c, nil
	}

	var partition *intstr.IntOrString
	if value, ok, _ := unstructured.NestedFieldNoCopy(object.Object,
		rolling.Child("partition")...); ok && value != nil {
		partition = &intstr.IntOrString{}
		if err := workload.Decode(value, partition); err != nil {
			return c, err
		}
	}

	stay, err := resolve(partition, c.replicas)
	c.target = max(c.replicas-stay, 0)
	return c, err
}

// kept returns the number of pods of a UnitedDeployment that partitions keep at the old revision.
func kept(object *unstructured.Unstructured) int {
	partitions, _, _ := unstructured.NestedMap(object.Object,
		"spec", "updateStrategy", "manualUpdate", "partitions")

	sizes := map[string]int{}
	list, _, _ := unstructured.NestedSlice(object.Object, "status", "subsetStatuses")
	for _, one := range list {
		if subset, ok := one.(map[string]any); ok {
			name, _ := subset["name"].(string)
			sizes[name] = number(&unstructured.Unstructured{Object: subset}, 0, "replicas")
		}
	}

	// v1alpha1 has a map instead of the list.
	byName, _, _ := unstructured.NestedMap(object.Object, "status", "subsetReplicas")
	for name, value := range byName {
		sizes[name] = whole(value)
	}

	sum := 0
	for name, value := range partitions {
		sum += min(whole(value), sizes[name])
	}
	return sum
}

// number returns an integer field of a document, or byDefault if the field is absent.
func number(object *unstructured.Unstructured, byDefault int, path ...string) int {
	value, ok, err := unstructured.NestedFieldNoCopy(object.Object, path...)
	if !ok || err != nil || value == nil {
		return byDefault
	}
	return whole(value)
}

func whole(value any) int {
	switch n := value.(type) {
	case int64:
		return int(n)
	case float64:
		return int(n)
	}
	return 0
}

// progress determines the progress from the numbers of pods.
func (c census) progress(object *unstructured.Unstructured) (Progress, error) {
	kind := strings.ToLower(object.GetKind())
	who := fmt.Sprintf("%s %q", kind, object.GetName())
	paused := ""
	if workload.IsPaused(object) {
		paused = "; it is paused"
	}

	wait := func(format string, args ...any) (Progress, error) {
		return Progress{
			Line: fmt.Sprintf("Waiting for %s rollout to finish: ", who) + fmt.Sprintf(format, args...) +
				paused + "...",
		}, nil
	}

	minReady := max(number(object, 0, "spec", "minReadySeconds"),
		number(object, 0, "spec", "updateStrategy", "rollingUpdate", "minReadySeconds"))

	switch {
	case !observed(object):
		return Progress{Line: fmt.Sprintf("Waiting for %s spec update to be observed...", kind)}, nil
	case exceeded(object):
		return Progress{}, fmt.Errorf("%s exceeded its progress deadline", who)
	case c.updated < c.target:
		return wait("%d out of %d new pods have been updated", c.updated, c.target)
	case c.ready < c.target:
		return wait("%d of %d updated pods are ready", max(c.ready, 0), c.target)
	case minReady > 0 && c.available < c.target:
		return wait("%d of %d updated pods are available", max(c.available, 0), c.target)
	case c.target < c.replicas:
		return Progress{
			Done: true,
			Line: fmt.Sprintf("%s rolled out as far as its partition allows: %d of %d pods are updated%s",
				who, c.updated, c.replicas, paused),
		}, nil
	}
	return Progress{Line: fmt.Sprintf("%s successfully rolled out%s", who, paused), Done: true}, nil
}

// observed reports whether the status describes the current generation of the object.
func observed(object *unstructured.Unstructured) bool {
	return int64(number(object, 0, "status", "observedGeneration")) >= object.GetGeneration()
}

// exceeded reports whether the rollout has exceeded its progress deadline.
func exceeded(object *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, one := range conditions {
		condition, _ := one.(map[string]any)
		if condition["type"] == "Progressing" && condition["status"] == "False" &&
			condition["reason"] == "ProgressDeadlineExceeded" {
			return true
		}
	}

	return false
}
