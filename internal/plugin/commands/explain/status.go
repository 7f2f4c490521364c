package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
)

// whyStatus explains an object of a kind that has no plans, by what its controller has published: status,
// conditions and warnings.
func (r *Reader) whyStatus(
	ctx context.Context, of schema.GroupKind, name types.NamespacedName,
) (*Explanation, error) {
	if of.Group != appsv1beta1.GroupVersion.Group && of.Group != policyv1beta1.GroupVersion.Group {
		return nil, fmt.Errorf("no plans are made for a %s: %s", of, advice(of))
	}

	mapping, err := r.mapper.RESTMapping(of)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", of, err)
	}

	if mapping.Scope.Name() == "root" {
		name.Namespace = ""
	}

	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(mapping.GroupVersionKind)
	if err := r.client.Get(ctx, name, object); err != nil {
		return nil, err //nolint:wrapcheck // the API server names the object
	}

	e := &Explanation{
		Kind:      of.Kind,
		Namespace: name.Namespace,
		Name:      name.Name,
		Pods:      []Pod{},
		now:       r.now(),
		told:      true,
	}

	status, _, err := unstructured.NestedMap(object.Object, "status")
	if err != nil || len(status) == 0 {
		e.Summary = append(e.Summary, "it has no status yet: its controller has not seen it")
	}

	if at := object.GetDeletionTimestamp(); at != nil {
		e.Problems = append(e.Problems,
			fmt.Sprintf("it is being deleted since %s, and waits for its finalizers: %s",
				ago(e.now, at.Time), strings.Join(object.GetFinalizers(), ", ")))
	}

	if seen, found, _ := unstructured.NestedInt64(status, "observedGeneration"); found &&
		seen < object.GetGeneration() {
		e.Problems = append(e.Problems,
			fmt.Sprintf("its controller has seen generation %d, and not %d yet",
				seen, object.GetGeneration()))
	}

	e.Summary = append(e.Summary, statusLines(status, e.now)...)
	e.Warnings = r.warnings(ctx, object, e.now)
	return e, nil
}

// statusLines formats a status: single values share one line, and each condition or other list item has its
// own line.
func statusLines(status map[string]any, now time.Time) []string {
	var lines []string
	if single := singles(status, "observedGeneration"); single != "" {
		lines = append(lines, single)
	}

	for _, key := range slices.Sorted(maps.Keys(status)) {
		items, ok := status[key].([]any)
		if !ok {
			continue
		}

		for i, item := range items {
			if i == mostItems {
				lines = append(lines, fmt.Sprintf("%s: and %d more", key, len(items)-i))
				break
			}
			lines = append(lines, itemLine(key, item, now))
		}
	}
	return lines
}

// mostItems bounds the number of shown items of a list, and mostEvents that of events.
const mostItems, mostEvents = 50, 5

func itemLine(list string, item any, now time.Time) string {
	members, ok := item.(map[string]any)
	if !ok {
		return fmt.Sprintf("%s: %v", list, item)
	}

	text := func(key string) string {
		value, _, _ := unstructured.NestedString(members, key)
		return value
	}

	if list != "conditions" {
		return strings.TrimSpace(fmt.Sprintf("%s %s", list, text("name"))) + ": " + singles(members, "name")
	}

	line := text("type") + " is " + text("status")
	if at, err := time.Parse(time.RFC3339, text("lastTransitionTime")); err == nil {
		line += " since " + ago(now, at)
	}
	if reason := text("reason"); reason != "" {
		line += " (" + reason + ")"
	}
	if message := text("message"); message != "" {
		line += ": " + message
	}

	// This field exists in the conditions of ResourceDistributions.
	if in, _, _ := unstructured.NestedStringSlice(members, "failedNamespaces"); len(in) > 0 {
		more := ""
		if len(in) > mostItems {
			in, more = in[:mostItems], ", and more"
		}
		line += ": " + strings.Join(in, ", ") + more
	}
	return line
}

// singles formats the members that are single values, except the one with the given key.
func singles(members map[string]any, without string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(members)) {
		switch value := members[key].(type) {
		case map[string]any, []any, nil:
		default:
			if text := fmt.Sprint(value); key != without && text != "" {
				parts = append(parts, key+" "+text)
			}
		}
	}
	return strings.Join(parts, ", ")
}

// warnings returns the latest warning events about an object, or nil if the user may not read them.
func (r *Reader) warnings(ctx context.Context, object client.Object, now time.Time) []string {
	var events corev1.EventList
	namespace := object.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}

	if err := r.client.List(ctx, &events,
		client.InNamespace(namespace),
		client.Limit(page),
		client.MatchingFields{
			"involvedObject.uid": string(object.GetUID()),
			"type":               corev1.EventTypeWarning,
		},
	); err != nil {
		return nil
	}

	at := func(e *corev1.Event) time.Time {
		last := e.LastTimestamp.Time
		if e.Series != nil && e.Series.LastObservedTime.After(last) {
			last = e.Series.LastObservedTime.Time
		}
		if e.EventTime.After(last) {
			last = e.EventTime.Time
		}
		return last
	}

	slices.SortFunc(events.Items, func(a, b corev1.Event) int { return at(&b).Compare(at(&a)) })
	var lines []string
	told := map[string]bool{}

	for i := range events.Items {
		event := &events.Items[i]
		if told[event.Reason] || len(lines) == mostEvents {
			continue
		}

		told[event.Reason] = true
		lines = append(lines, fmt.Sprintf("%s ago, %s: %s", ago(now, at(event)), event.Reason, event.Message))
	}
	return lines
}

func ago(now, at time.Time) string { return duration.HumanDuration(max(now.Sub(at), 0)) }
