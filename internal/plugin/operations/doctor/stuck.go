package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// recent is how long events and writes of other field managers count.
const recent = time.Hour

// leaving is how long a deletion may take.
const leaving = 10 * time.Minute

// deleted records a problem if an object has been in deletion for too long.
func (d *doctor) deleted(check string, object *unstructured.Unstructured) {
	if at := object.GetDeletionTimestamp(); at != nil && d.now.Sub(at.Time) > leaving {
		d.add(check, Problem, installation.Of(object),
			fmt.Sprintf("it is being deleted for %s, and held by finalizers %s", ago(d.now.Sub(at.Time)),
				strings.Join(object.GetFinalizers(), ", ")),
			"look who is to remove them; the manager's log says what its own wait for")
	}
}

func (d *doctor) checkWorkloads(ctx context.Context) error {
	const check = "workloads"
	total := 0
	for _, name := range []string{"CloneSet", "StatefulSet", "DaemonSet", "SidecarSet", "WorkloadSpread"} {
		if err := d.each(ctx, name, func(object *unstructured.Unstructured) error {
			total++
			d.deleted(check, object)
			d.checkConditions(check, name, object)
			return nil
		}); err != nil {
			d.unreadable(check, err)
		}
	}

	waits := map[string]string{}
	if err := installation.Each(ctx, d.client, schema.GroupVersionKind{Version: "v1", Kind: "Event"},
		func(event *unstructured.Unstructured) error {
			if d.age(lastSeen(event)) < recent &&
				installation.Text(event.Object, "reason") == waiting.EventReason {
				object, _, _ := unstructured.NestedMap(event.Object, "involvedObject")
				waits[fmt.Sprintf("%v %s", object["kind"], strings.TrimPrefix(
					installation.Text(object, "namespace")+"/"+installation.Text(object, "name"), "/"),
				)] = installation.Text(event.Object, "message")
			}
			return nil
		}, client.MatchingFields{"reason": waiting.EventReason}); err != nil {
		d.unreadable(check, err)
	}

	for _, object := range sorted(waits) {
		d.add(check, Warning, object, "its rollout waited within the last hour: "+waits[object],
			d.whyOf(object)+" says what it waits for now")
	}

	d.add(check, OK, "", wording.Count(total, "workload")+" looked at", "")
	return nil
}

// whyOf returns the command that explains a workload. The object is named as in findings: "Kind
// namespace/name".
func (d *doctor) whyOf(object string) string {
	kind, name, _ := strings.Cut(object, " ")
	namespace, name, found := strings.Cut(name, "/")
	if !found {
		namespace, name = "", namespace
	}
	return d.why(strings.ToLower(kind)+".apps.kruise.io", namespace, name)
}

// lastSeen returns when an event was last seen.
func lastSeen(event *unstructured.Unstructured) string {
	for _, path := range [][]string{{"series", "lastObservedTime"}, {"lastTimestamp"}, {"eventTime"},
		{"metadata", "creationTimestamp"}} {
		if text := installation.Text(event.Object, path...); text != "" {
			return text
		}
	}
	return ""
}

// isOurs reports whether a pod is owned by a workload of the project.
func isOurs(pod *unstructured.Unstructured) bool {
	return slices.ContainsFunc(pod.GetOwnerReferences(),
		func(owner metav1.OwnerReference) bool {
			return strings.HasPrefix(owner.APIVersion, "apps.kruise.io/")
		})
}

func (d *doctor) checkPods(ctx context.Context) error {
	const check = "pods"
	total := 0
	claims := map[string]string{}
	if err := installation.Each(ctx, d.client, installation.Pods, func(pod *unstructured.Unstructured) error {
		if !isOurs(pod) {
			return nil
		}

		total++
		// The deletion timestamp of a pod already includes its grace period.
		if at := pod.GetDeletionTimestamp(); at != nil && d.now.Sub(at.Time) > time.Minute {
			why := "its node may be down"
			if finalizers := pod.GetFinalizers(); len(finalizers) > 0 {
				why = "finalizers " + strings.Join(finalizers, ", ") + " hold it"
			}
			d.add(check, Problem, installation.Of(pod),
				fmt.Sprintf("it ends for %s longer than its grace period: %s", ago(d.now.Sub(at.Time)), why),
				"kubectl describe node "+installation.Text(pod.Object, "spec", "nodeName"))
		}

		if installation.Text(pod.Object, "status", "phase") == "Pending" {
			for _, volume := range installation.Maps(pod.Object, "spec", "volumes") {
				if claim := installation.Text(volume, "persistentVolumeClaim", "claimName"); claim != "" {
					claims[pod.GetNamespace()+"/"+claim] = pod.GetName()
				}
			}
		}
		return nil
	}); err != nil {
		return err
	}

	for i, name := range sorted(claims) {
		if i >= mostOfCheck {
			break
		}
		namespace, claim, _ := strings.Cut(name, "/")
		object, err := d.get(ctx, schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"},
			namespace, claim)
		switch {
		case err != nil:
			d.unreadable(check, err)
		case object == nil:
			d.add(check, Problem, "PersistentVolumeClaim "+name,
				"pod "+claims[name]+" needs it, and it is not there", "look at the events of the workload")
		case installation.Text(object.Object, "status", "phase") == "Pending" &&
			d.now.Sub(object.GetCreationTimestamp().Time) > settled:
			d.add(check, Problem, "PersistentVolumeClaim "+name,
				fmt.Sprintf("pod %s needs it, and no volume was bound in %s", claims[name],
					ago(d.now.Sub(object.GetCreationTimestamp().Time))),
				"kubectl -n "+namespace+" describe pvc "+claim)
		}
	}

	d.add(check, OK, "", wording.Count(total, "pod")+" of workloads looked at", "")
	return nil
}

func (d *doctor) checkRequests(ctx context.Context) error {
	const check = "requests"
	total := 0
	for _, name := range []string{"ContainerRecreateRequest", "ImagePullJob", "ImageListPullJob",
		"EphemeralJob", "PodProbeMarker"} {
		if err := d.each(ctx, name, func(object *unstructured.Unstructured) error {
			total++
			d.deleted(check, object)
			deadline := number(object.Object, "spec", "activeDeadlineSeconds")
			if name != "ContainerRecreateRequest" {
				deadline = number(object.Object, "spec", "completionPolicy", "activeDeadlineSeconds")
			}
			ended := installation.Text(object.Object, "status", "completionTime") != ""
			late := d.now.Sub(object.GetCreationTimestamp().Time) - time.Duration(deadline)*time.Second
			if deadline > 0 && !ended && late > time.Minute {
				d.add(check, Problem, installation.Of(object),
					fmt.Sprintf("it is open for %s beyond its deadline of %s", ago(late),
						ago(time.Duration(deadline)*time.Second)),
					"the manager ends it: look at the leader and its log")
			}
			return nil
		}); err != nil {
			d.unreadable(check, err)
		}
	}

	d.add(check, OK, "", wording.Count(total, "request")+" and jobs looked at", "")
	return nil
}

func (d *doctor) checkBudgets(ctx context.Context) error {
	const check = "budgets"
	total := 0
	err := d.each(ctx, "PodUnavailableBudget",
		func(object *unstructured.Unstructured) error {
			total++
			d.deleted(check, object)
			available, desired := number(object.Object, "status", "currentAvailable"),
				number(object.Object, "status", "desiredAvailable")
			if number(object.Object, "status", "totalReplicas") > 0 &&
				number(object.Object, "status", "unavailableAllowed") == 0 {
				d.add(check, Warning, installation.Of(object),
					fmt.Sprintf("it has no room: %d pods are in service and %d must be", available, desired),
					"drains and rollouts of its pods wait: look which of them are not ready, or change the budget")
			}
			return nil
		})

	d.add(check, OK, "", wording.Count(total, "budget")+" looked at", "")
	return err
}
