package sidecarset

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// missingEvery is how often all pods are looked through for those that were never injected.
const missingEvery = time.Minute

// Missing are the pods that a SidecarSet selects and that were never injected by it: made before it, while injection was paused, or while the
// webhook was not called (SS-006, SS-W09).
type Missing struct {
	// Pods is how many there are.
	Pods int
	// Examples are the first of them by name.
	Examples []string
}

// String says it for an event.
func (m Missing) String() string {
	return fmt.Sprintf("%d pod(s) that it selects were never injected, and will not be until they are made anew: %s", m.Pods, strings.Join(m.Examples, ", "))
}

// MissingPods counts by SidecarSet; each walks over pods until do returns false. Namespaces are the labels of those that are known, and install is the
// one of the manager: like those of the system its pods never reach the webhook (SS-085).
func MissingPods(sets []*appsv1beta1.SidecarSet, each func(do func(*corev1.Pod) bool), namespaces map[string]map[string]string, install string) map[string]Missing {
	type looker struct {
		*planner
		missing Missing
	}
	lookers := make([]*looker, 0, len(sets))
	for _, set := range sets {
		l := &looker{planner: &planner{Snapshot: Snapshot{Set: set}}}
		l.prepare()
		lookers = append(lookers, l)
	}
	bases := map[string]string{}
	for _, set := range sets {
		if base := CanaryOf(set); base != "" {
			bases[set.Name] = base
		}
	}
	const examples = 3
	each(func(pod *corev1.Pod) bool {
		if !Active(pod) || pod.Namespace == metav1.NamespaceSystem || pod.Namespace == install || namespaces[pod.Namespace]["control-plane"] == "openkruise" {
			return true
		}
		var injected []string
		if list := pod.Annotations[pub.SidecarSetInjectedList]; list != "" {
			injected = ReadInjectedList(list)
		}
		for _, l := range lookers {
			if !l.selector.Matches(labels.Set(pod.Labels)) || !l.namespaces.Matches(labels.Set(namespaces[pod.Namespace])) || slices.ContainsFunc(injected, func(name string) bool {
				return name == l.Set.Name || bases[name] == l.Set.Name // SS-175
			}) {
				continue
			}
			l.missing.Pods++
			l.missing.Examples = append(l.missing.Examples, pod.Namespace+"/"+pod.Name)
			if len(l.missing.Examples) > examples {
				slices.Sort(l.missing.Examples)
				l.missing.Examples = l.missing.Examples[:examples]
			}
		}
		return true
	})
	counts := map[string]Missing{}
	for _, l := range lookers {
		slices.Sort(l.missing.Examples)
		counts[l.Set.Name] = l.missing
	}
	return counts
}

// watchMissing looks through all pods once in a while, as long as the context lives.
func (r *reconciler) watchMissing(ctx context.Context) error {
	said := map[types.UID]int{}
	ticker := time.NewTicker(missingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := r.missing(ctx, said); err != nil {
				log.FromContext(ctx).Error(err, "Counting pods that were never injected")
			}
		}
	}
}

// missing shows the numbers, and tells of one that grew since it was told.
func (r *reconciler) missing(ctx context.Context, said map[types.UID]int) error {
	var list appsv1beta1.SidecarSetList
	if err := r.kube.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing SidecarSets: %w", err)
	}
	if len(list.Items) == 0 {
		return nil
	}
	namespaces := namespaceList()
	if err := r.kube.Client.List(ctx, namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing namespaces: %w", err)
	}
	byName := map[string]map[string]string{}
	for i := range namespaces.Items {
		byName[namespaces.Items[i].Name] = namespaces.Items[i].Labels
	}
	sets := make([]*appsv1beta1.SidecarSet, 0, len(list.Items))
	for i := range list.Items {
		sets = append(sets, &list.Items[i])
	}
	counts := MissingPods(sets, r.kube.Pods.All, byName, r.kube.Namespace)
	before := maps.Clone(said)
	clear(said) // of those that are gone nothing is remembered
	for _, set := range sets {
		missing := counts[set.Name]
		r.meters.notInjected.WithLabelValues(set.Name).Set(float64(missing.Pods))
		if missing.Pods > before[set.UID] && !set.Spec.InjectionStrategy.Paused {
			r.pass.Applier.Events.Event(set, corev1.EventTypeNormal, "PodsNotInjected", missing.String())
		}
		said[set.UID] = missing.Pods
	}
	return nil
}
