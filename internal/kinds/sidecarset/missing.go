package sidecarset

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// Missing describes the pods that a SidecarSet selects but was never injected into. They are older than the
// SidecarSet, or were created while injection was paused or the webhook was not called (SS-006, SS-W09).
type Missing struct {
	// Pods is the number of such pods.
	Pods int
	// Escaped is how many of them are not older than the SidecarSet. Nobody could have expected that these
	// lack the sidecar.
	Escaped int
	// Examples are the names of the first of them. Those that escaped come before the others.
	Examples []string
}

// examples is how many pods an event names.
const examples = 10

// few counts names and keeps the first of them in order.
type few struct {
	count int
	first []string
}

func (f *few) add(name string) {
	f.count++
	at, _ := slices.BinarySearch(f.first, name)
	if f.first = slices.Insert(f.first, at, name); len(f.first) > examples {
		f.first = f.first[:examples]
	}
}

// String returns the message of an event.
func (m Missing) String() string {
	which := ""
	if m.Escaped > 0 {
		which = fmt.Sprintf(" (%d of them %s not older than the SidecarSet)", m.Escaped,
			wording.Form(m.Escaped, "is", "are"))
	}
	return fmt.Sprintf("%s that it selects %s never got its containers%s, and will not until made anew: %s",
		wording.Count(m.Pods, "pod"), wording.Form(m.Pods, "has", "have"), which, strings.Join(m.Examples, ", "))
}

// Worth returns the type of the event that is due because the numbers have grown since the last event, or ""
// if none is due. Everybody expects that pods older than their SidecarSet lack it, so only other pods cause a
// warning.
func (m Missing) Worth(told Missing) string {
	switch {
	case m.Escaped > told.Escaped:
		return corev1.EventTypeWarning
	case m.Pods > told.Pods:
		return corev1.EventTypeNormal
	}
	return ""
}

// MissingPods returns the missing pods by SidecarSet. each iterates over pods until do returns false.
// namespaces are the labels of the known namespaces. install is the namespace of the manager, whose pods
// never reach the webhook, like those of the system (SS-085).
func MissingPods(
	sets []*appsv1beta1.SidecarSet, each func(do func(*corev1.Pod) bool),
	namespaces map[string]map[string]string, install string,
) map[string]Missing {
	type looker struct {
		*planner
		escaped, older few
	}
	lookers := make([]*looker, 0, len(sets))
	for _, set := range sets {
		l := &looker{planner: &planner{in: Snapshot{Set: set}}}
		l.prepare()
		lookers = append(lookers, l)
	}

	bases := map[string]string{}
	for _, set := range sets {
		if base := CanaryOf(set); base != "" {
			bases[set.Name] = base
		}
	}

	each(func(pod *corev1.Pod) bool {
		if !readiness.Active(pod) || pod.Namespace == metav1.NamespaceSystem || pod.Namespace == install ||
			namespaces[pod.Namespace]["control-plane"] == "openkruise" {
			return true
		}
		var injected []string
		if list := pod.Annotations[pub.SidecarSetInjectedList]; list != "" {
			injected = ReadInjectedList(list)
		}
		for _, l := range lookers {
			if !l.selector.Matches(labels.Set(pod.Labels)) ||
				!l.namespaces.Matches(labels.Set(namespaces[pod.Namespace])) ||
				slices.ContainsFunc(injected, func(name string) bool {
					return name == l.in.Set.Name || bases[name] == l.in.Set.Name
				}) {
				continue
			}
			if name := pod.Namespace + "/" + pod.Name; pod.CreationTimestamp.Before(
				&l.in.Set.CreationTimestamp) {
				l.older.add(name)
			} else {
				l.escaped.add(name)
			}
		}
		return true
	})

	counts := map[string]Missing{}
	for _, l := range lookers {
		named := append(l.escaped.first, l.older.first...)
		counts[l.in.Set.Name] = Missing{Pods: l.escaped.count + l.older.count, Escaped: l.escaped.count,
			Examples: named[:min(examples, len(named))]}
	}

	return counts
}
