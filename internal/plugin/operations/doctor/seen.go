package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/plugin/commands/explain"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
	"github.com/afloat-project/afloat/internal/registry"
)

// behind is how long the controller may take to observe a change.
const behind = 2 * time.Minute

// checkSeen checks whether the controllers of the leader act. A kind with objects whose last change has not
// been observed for minutes is not reconciled, whatever the manager reports about itself. A new leader gets
// the same time for changes that were made before it became the leader.
func (d *doctor) checkSeen(ctx context.Context) error {
	const check = "controllers"
	if err := d.checkTold(ctx); err != nil {
		d.unreadable(check, err)
	}

	kinds, total := 0, 0
	for _, manifest := range d.manifests {
		if manifest.GetKind() != "CustomResourceDefinition" || !installation.OfProject(manifest) ||
			!observes(manifest) {
			continue
		}

		name := installation.StoredKind(manifest).Kind
		if d.isOff(name) {
			continue
		}

		all, late, words := 0, 0, ""
		err := d.each(ctx, name, func(object *unstructured.Unstructured) error {
			all++
			seen := number(object.Object, "status", "observedGeneration")
			if seen >= object.GetGeneration() || object.GetDeletionTimestamp() != nil || fails(object) {
				return nil
			}
			since := d.now.Sub(changed(object))
			if !d.led.IsZero() {
				since = min(since, d.now.Sub(d.led))
			}
			if since <= behind {
				return nil
			}
			if late++; late == 1 {
				words = fmt.Sprintf("%s is at generation %d, and its controller has seen %d, for %s",
					installation.Of(object), object.GetGeneration(), seen, ago(since))
			}
			return nil
		})

		if err != nil {
			d.unreadable(check, err)
			continue
		}

		kinds++
		total += all
		if late > 0 {
			d.add(check, Problem, "",
				fmt.Sprintf(
					"the last change of %d of %s of kind %s is not seen, as if nobody reconciled it: %s",
					late, wording.Count(all, "object"), name, words),
				d.leaderAdvice())
		}
	}

	d.add(check, OK, "",
		fmt.Sprintf("%s of %s looked at", wording.Count(total, "object"), wording.Count(kinds, "kind")), "")
	return nil
}

// toldWithin is how long an event of the manager counts. The manager repeats it every half an hour while the
// condition lasts.
const toldWithin = 35 * time.Minute

// checkTold looks at the events that the manager records about its own Deployment: kinds that it cannot
// watch, and controllers that do not work.
func (d *doctor) checkTold(ctx context.Context) error {
	type telling struct {
		at            time.Time
		reason, words string
	}
	last := map[string]telling{}
	kind := schema.GroupVersionKind{Version: "v1", Kind: "Event"}
	if err := installation.Each(ctx, d.client, kind, func(event *unstructured.Unstructured) error {
		reason, words := installation.Text(event.Object, "reason"), installation.Text(event.Object, "message")
		if !slices.Contains([]string{"KindNotWatched", "KindWatched", "ControllerNotWorking",
			"ControllerWorking"}, reason) {
			return nil
		}
		about, _, _ := strings.Cut(strings.TrimPrefix(words, "controller "), " ")
		at := told(event)
		if d.now.Sub(at) <= toldWithin && !at.Before(last[about].at) {
			last[about] = telling{at, reason, words}
		}
		return nil
	}, client.InNamespace(d.namespace),
		client.MatchingFields{"involvedObject.name": installation.Manager}); err != nil {
		return err
	}

	for _, about := range slices.Sorted(maps.Keys(last)) {
		if t := last[about]; strings.Contains(t.reason, "Not") {
			d.add("controllers", Problem, "", fmt.Sprintf("%s (told %s ago)", t.words, ago(d.now.Sub(t.at))),
				d.leaderAdvice())
		}
	}

	return nil
}

// told returns when an event was last seen, whichever API it was written by.
func told(event *unstructured.Unstructured) time.Time {
	var last time.Time
	for _, path := range [][]string{{"lastTimestamp"}, {"eventTime"}, {"series", "lastObservedTime"}} {
		if at, err := time.Parse(time.RFC3339, installation.Text(event.Object, path...)); err == nil &&
			at.After(last) {
			last = at
		}
	}
	return last
}

// isOff reports whether feature gates disable a kind, so that its objects are not reconciled.
func (d *doctor) isOff(name string) bool {
	list := ""
	if d.manager != nil {
		args, _, _ := unstructured.NestedStringSlice(container(d.manager), "args")
		for _, arg := range args {
			if value, ok := strings.CutPrefix(arg, "--feature-gates="); ok {
				list = value
			}
		}
	}
	gates, _, err := explain.Gates(list)
	return err == nil && slices.ContainsFunc(registry.Kinds,
		func(k framework.Kind) bool { return k.Name == name && k.Gates.Off(gates) != nil })
}

// fails reports whether a DaemonSet itself shows why its last change is not observed: its last pass failed,
// or its selector selects everything.
func fails(object *unstructured.Unstructured) bool {
	if object.GetKind() != "DaemonSet" {
		return false
	}
	selector, _, _ := unstructured.NestedMap(object.Object, "spec", "selector")
	return empty(selector) || slices.ContainsFunc(installation.Maps(object.Object, "status", "conditions"),
		func(condition map[string]any) bool {
			return strings.HasPrefix(installation.Text(condition, "type"), "Failed") &&
				condition["status"] == "True"
		})
}

// empty reports whether a selector selects everything.
func empty(selector map[string]any) bool {
	labels, _ := selector["matchLabels"].(map[string]any)
	expressions, _ := selector["matchExpressions"].([]any)
	return len(labels) == 0 && len(expressions) == 0
}

// leaderAdvice returns where to look if the leader does not act.
func (d *doctor) leaderAdvice() string {
	if d.leader == "" {
		return "look at the replicas of the manager and their logs"
	}
	return fmt.Sprintf("kubectl -n %s logs %s says which kind cannot be watched, and why; once that is mended, or to let another replica lead: "+
		"kubectl -n %[1]s delete pod %[2]s", d.namespace, d.leader)
}

// observes reports whether the status of a definition's stored version has observedGeneration.
func observes(definition *unstructured.Unstructured) bool {
	for _, version := range installation.Maps(definition.Object, "spec", "versions") {
		_, found, _ := unstructured.NestedFieldNoCopy(version, "schema", "openAPIV3Schema", "properties",
			"status", "properties", "observedGeneration")
		if version["storage"] == true {
			return found
		}
	}
	return false
}

// changed returns when the spec or the scale of an object was last written.
func changed(object *unstructured.Unstructured) time.Time {
	last := object.GetCreationTimestamp().Time
	for _, entry := range object.GetManagedFields() {
		if (entry.Subresource == "" || entry.Subresource == "scale") && entry.Time != nil &&
			entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

// checkConditions looks at conditions of a workload that report a failure. The previous manager may have left
// such conditions behind. They are no problem once the workload has converged, and its controller removes
// them in its next pass.
func (d *doctor) checkConditions(check, name string, object *unstructured.Unstructured) {
	for _, condition := range installation.Maps(object.Object, "status", "conditions") {
		typ, _ := condition["type"].(string)
		stalled := typ == "Progressing" && condition["status"] == "False" && condition["reason"] != "Paused"
		if !stalled && (!strings.HasPrefix(typ, "Failed") || condition["status"] != "True") {
			continue
		}
		words := strings.TrimSpace(typ + " " + installation.Text(condition, "message"))
		if since := d.age(installation.Text(condition, "lastTransitionTime")); since > 0 {
			words += " (for " + ago(since) + ")"
		}
		why := d.why(strings.ToLower(name)+".apps.kruise.io", object.GetNamespace(), object.GetName())
		if finished(object) {
			d.add(check, Warning, installation.Of(object),
				words+": an old condition, since all its pods are as they are to be",
				"its controller takes it away with its next pass: if it stays, look at the leader")
			continue
		}
		d.add(check, Problem, installation.Of(object), words, why+" says which pods wait for what")
	}
}

// why returns the command that explains a workload.
func (d *doctor) why(resource, namespace, name string) string {
	command := "kubectl afloat why"
	if namespace != "" {
		command += " -n " + namespace
	}
	if d.namespace != installation.Namespace {
		command += " --manager-namespace " + d.namespace
	}
	return command + " " + resource + "/" + name
}

// finished reports whether a workload matches its spec, so that nothing can be failing at the moment.
func finished(object *unstructured.Unstructured) bool {
	status := func(field string) int64 { return number(object.Object, "status", field) }
	if status("observedGeneration") < object.GetGeneration() || object.GetDeletionTimestamp() != nil {
		return false
	}

	partition, _, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "updateStrategy",
		"rollingUpdate", "partition")
	if flat, found, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "updateStrategy",
		"partition"); found {
		partition = flat
	}

	held := partition != nil && partition != int64(0) && partition != "0" && partition != "0%"
	switch object.GetKind() {
	case "CloneSet", "StatefulSet":
		replicas, given, _ := unstructured.NestedInt64(object.Object, "spec", "replicas")
		if !given {
			replicas = 1
		}
		updated := status("updatedReplicas") == replicas ||
			held &&
				(object.GetKind() != "CloneSet" ||
					status("updatedReplicas") >= status("expectedUpdatedReplicas"))
		return status("replicas") == replicas && status("availableReplicas") == replicas && updated
	case "DaemonSet":
		wanted := status("desiredNumberScheduled")
		return status("numberAvailable") == wanted && status("currentNumberScheduled") == wanted &&
			(held || status("updatedNumberScheduled") == wanted)
	}

	return false
}
