package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	numbers "github.com/afloat-project/afloat/internal/engine/rollout"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/plugin/commands/rollout"
	"github.com/afloat-project/afloat/internal/plugin/workload"
)

// state is the state of a workload.
type state string

// States of workloads.
const (
	stateDone     state = "done"
	stateRolling  state = "rolling"
	stateWaiting  state = "waiting" // something blocks it that nobody asked for
	statePaused   state = "paused"
	stateFailed   state = "failed"
	stateDeleting state = "deleting"
	stateUnknown  state = "unknown"
)

// row is what the overview shows of a workload.
type row struct {
	ID        string    `json:"id"`
	Kind      string    `json:"kind"`
	Resource  string    `json:"resource"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Created   time.Time `json:"created"`
	Images    []string  `json:"images,omitempty"`

	// The numbers of pods: how many there should be, how many have the new revision, how many should get it, and
	// how many are ready. A number that is not known is nil.
	Desired *int `json:"desired,omitempty"`
	Updated *int `json:"updated,omitempty"`
	Target  *int `json:"target,omitempty"`
	Ready   *int `json:"ready,omitempty"`

	State state `json:"state"`
	// Line describes the progress in words. Waiting is the planner's reason if the rollout waits.
	Line    string `json:"line"`
	Waiting string `json:"waiting,omitempty"`
}

// rowOf returns the row of a workload.
func rowOf(resource string, o *unstructured.Unstructured) row {
	r := row{
		ID:        resource + "/" + o.GetNamespace() + "/" + o.GetName(),
		Kind:      o.GetKind(),
		Resource:  resource,
		Namespace: o.GetNamespace(),
		Name:      o.GetName(),
		Created:   o.GetCreationTimestamp().Time,
		Images:    images(o),
	}
	r.count(o)

	switch problem := problemOf(o); {
	case o.GetDeletionTimestamp() != nil:
		r.State, r.Line = stateDeleting, "It is being deleted."
	case problem != "":
		r.State, r.Waiting = stateFailed, problem
	case workload.IsPaused(o) && r.State != stateDone:
		r.State = statePaused
	}
	return r
}

// count sets the numbers, the state and the line.
func (r *row) count(o *unstructured.Unstructured) {
	set := func(to **int, path ...string) {
		if n, ok, err := unstructured.NestedInt64(o.Object, path...); ok && err == nil {
			*to = new(int(n))
		}
	}

	switch workload.Kind(o) {
	case workloadkind.AdvancedDaemonSet:
		set(&r.Desired, "status", "desiredNumberScheduled")
		set(&r.Ready, "status", "numberReady")
	case workloadkind.BroadcastJob:
		set(&r.Desired, "status", "desired")
		set(&r.Updated, "status", "succeeded")
		r.Target = r.Desired
		r.ends(o)
		return
	case workloadkind.AdvancedCronJob:
		active, _, _ := unstructured.NestedSlice(o.Object, "status", "active")
		r.State, r.Line = stateDone, fmt.Sprintf("%d of its runs are active.", len(active))
		return
	case workload.SidecarSet:
		set(&r.Desired, "status", "matchedPods")
		set(&r.Updated, "status", "updatedPods")
		set(&r.Ready, "status", "readyPods")
		r.upgrades(o)
		return
	default:
		set(&r.Desired, "spec", "replicas")
		set(&r.Ready, "status", "readyReplicas")
	}

	p, err := rollout.ProgressOf(o)
	switch {
	case err != nil:
		set(&r.Updated, "status", "updatedReplicas")
		r.State, r.Line = stateUnknown, err.Error()
	case p.Done:
		r.State, r.Line = stateDone, p.Line
	default:
		r.State, r.Line = stateRolling, p.Line
	}
	if err == nil {
		r.Updated, r.Target = &p.Updated, &p.Target
	}
	if r.State == stateDone && r.Ready != nil && r.Desired != nil && *r.Ready < *r.Desired {
		r.State, r.Line = stateRolling, fmt.Sprintf("%d of %d pods are ready.", *r.Ready, *r.Desired)
	}
}

// upgrades sets the state of a SidecarSet.
func (r *row) upgrades(o *unstructured.Unstructured) {
	r.Target = r.Desired
	r.State, r.Line = stateRolling, "Not all of its pods have the new sidecars."
	observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	if r.Desired == nil || r.Updated == nil || observed < o.GetGeneration() {
		return
	}

	strategy, _, _ := unstructured.NestedMap(o.Object, "spec", "updateStrategy")
	if strategy["type"] == "NotUpdate" {
		r.Target, r.State, r.Line = r.Updated, stateDone, "Its pods keep the sidecars that they have."
		return
	}
	if value := strategy["partition"]; value != nil {
		partition := &intstr.IntOrString{}
		if workload.Decode(value, partition) == nil {
			kept, _ := numbers.Partition(partition, *r.Desired)
			r.Target = new(*r.Desired - kept)
		}
	}
	switch {
	case *r.Updated < *r.Target:
	case *r.Target < *r.Desired:
		r.State, r.Line = stateDone, "As many of its pods have the new sidecars as its partition allows."
	default:
		r.State, r.Line = stateDone, "All of its pods have the new sidecars."
	}
}

// ends sets the state of a job.
func (r *row) ends(o *unstructured.Unstructured) {
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	r.State, r.Line = stateRolling, "It runs: "+cmp.Or(phase, "nothing is known yet")+"."
	switch phase {
	case "completed":
		r.State = stateDone
	case "failed":
		r.State = stateFailed
	case "paused":
		r.State = statePaused
	}
}

// condition is a condition of a workload.
type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Since   string `json:"since,omitempty"`
}

// conditions returns the conditions of a workload.
func conditions(o *unstructured.Unstructured) []condition {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	all := []condition{}
	for _, one := range list {
		fields, _ := one.(map[string]any)
		text := func(key string) string { value, _ := fields[key].(string); return value }
		all = append(all, condition{
			text("type"), text("status"), text("reason"), text("message"), text("lastTransitionTime"),
		})
	}
	return all
}

// problemOf returns what is wrong with a workload according to its conditions, or an empty string.
func problemOf(o *unstructured.Unstructured) string {
	for _, c := range conditions(o) {
		if strings.HasPrefix(c.Type, "Failed") && c.Status == "True" ||
			c.Type == "Progressing" && c.Status == "False" && c.Reason == "ProgressDeadlineExceeded" {
			return fmt.Sprintf("%s: %s", cmp.Or(c.Reason, c.Type), c.Message)
		}
	}
	return ""
}

// containers returns the containers of a workload's templates that are no init containers, by name and image.
func containers(o *unstructured.Unstructured) []map[string]string {
	found, err := workload.Containers(o)
	if err != nil {
		return nil
	}

	var all []map[string]string
	for _, c := range found {
		image, _ := c.Fields["image"].(string)
		one := map[string]string{"name": c.Name(), "image": image}
		same := func(other map[string]string) bool { return other["name"] == one["name"] }
		if !c.Init && !slices.ContainsFunc(all, same) {
			all = append(all, one)
		}
	}
	return all
}

// images returns the images of a workload.
func images(o *unstructured.Unstructured) (all []string) {
	for _, c := range containers(o) {
		all = append(all, c["image"])
	}
	return all
}
