package inplace

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/podpatch"
)

// RefMetadata contains the changed labels and annotations that a container reads through its environment; nil
// removes the key (IPU-091, IPU-309).
type RefMetadata struct {
	Labels      map[string]*string `json:"labels,omitempty"`
	Annotations map[string]*string `json:"annotations,omitempty"`
}

// Parts are changes of containers, by container name. Batches divide them (IPU-101).
type Parts struct {
	// Images are the new images (IPU-033, IPU-318).
	Images map[string]string
	// Refs is the metadata that the container reads, so that a change of it restarts the container.
	Refs map[string]RefMetadata
	// Resources contains only the changed quantities (IPU-035).
	Resources map[string]corev1.ResourceRequirements
	// Restarts are the names of containers to restart without any other change, sorted (IPU-322).
	Restarts []string
}

// Empty reports whether no container changes.
func (p *Parts) Empty() bool {
	return len(p.Images)+len(p.Refs)+len(p.Resources)+len(p.Restarts) == 0
}

// Names returns the names of the containers that change, sorted.
func (p *Parts) Names() []string {
	names := map[string]bool{}
	for name := range p.Images {
		names[name] = true
	}
	for name := range p.Refs {
		names[name] = true
	}
	for name := range p.Resources {
		names[name] = true
	}
	for _, name := range p.Restarts {
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// only returns the parts of the containers for which keep returns true.
func (p *Parts) only(keep func(name string) bool) Parts {
	return Parts{
		Images: filter(p.Images, keep), Refs: filter(p.Refs, keep), Resources: filter(p.Resources, keep),
		Restarts: slices.DeleteFunc(slices.Clone(p.Restarts), func(name string) bool { return !keep(name) }),
	}
}

func filter[V any](m map[string]V, keep func(name string) bool) map[string]V {
	var out map[string]V
	for name, value := range m {
		if keep(name) {
			if out == nil {
				out = map[string]V{}
			}
			out[name] = value
		}
	}
	return out
}

// over returns these parts merged with earlier ones that were not written. For the same container and kind of
// change, the newer part wins.
func (p *Parts) over(earlier Parts) Parts {
	merged := Parts{
		Images: merge(earlier.Images, p.Images), Resources: maps.Clone(earlier.Resources),
		Refs: maps.Clone(earlier.Refs),
	}

	for name, resources := range p.Resources {
		before := merged.Resources[name]
		resources = corev1.ResourceRequirements{Limits: merge(before.Limits, resources.Limits),
			Requests: merge(before.Requests, resources.Requests)}
		merged.Resources = merge(merged.Resources, map[string]corev1.ResourceRequirements{name: resources})
	}

	for name, refs := range p.Refs {
		before := merged.Refs[name]
		refs = RefMetadata{
			Labels:      merge(before.Labels, refs.Labels),
			Annotations: merge(before.Annotations, refs.Annotations),
		}
		merged.Refs = merge(merged.Refs, map[string]RefMetadata{name: refs})
	}

	merged.Restarts = union(earlier.Restarts, p.Restarts)
	return merged
}

// union returns the strings of both lists, sorted and each once.
func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// put sets a value in a map, and creates the map if it is nil.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = value
}

func merge[K comparable, V any](a, b map[K]V) map[K]V {
	if len(a)+len(b) == 0 {
		return nil
	}
	out := make(map[K]V, len(a)+len(b))
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

// Change is what must be done to a pod to bring it from one template to another in place.
type Change struct {
	Parts
	// Labels and Annotations are new values that no container reads; nil removes the key (IPU-090).
	Labels, Annotations map[string]*string
	// AddFinalizers and RemoveFinalizers are the finalizers that the template gained and lost.
	AddFinalizers, RemoveFinalizers []string
	// Stops are the names of the containers that the change stops, sorted.
	Stops []string
	// Mends and MendsResources are the names of the containers whose image, or quantities, are restored
	// because they are those of another revision (IPU-326).
	Mends, MendsResources []string
	// KeepReady are the names of the containers whose restart leaves the pod ready (IPU-308).
	KeepReady []string
}

// Quiet reports whether the change touches neither containers nor labels. It then needs no budget, no grace
// period and no lifecycle state (IPU-308). A changed label may take the pod out of Services or policies that
// select by it, so such a change counts for the pace of the rollout (IPU-080).
func (c *Change) Quiet() bool { return c.Empty() && len(c.Labels) == 0 }

// Holds reports whether the change takes the pod out of service: it stops a container that is not listed in
// KeepReady (IPU-136, IPU-308).
func (c *Change) Holds() bool {
	return slices.ContainsFunc(c.Stops, func(name string) bool { return !slices.Contains(c.KeepReady, name) })
}

// NeedsDaemon returns the containers that only a node daemon can restart: their image stays, while their
// environment changes or a restart is requested (IPU-130, IPU-312, IPU-322).
func (c *Change) NeedsDaemon() []string {
	return slices.DeleteFunc(c.Names(), func(name string) bool {
		_, image := c.Images[name]
		_, refs := c.Refs[name]
		return image || !refs && !slices.Contains(c.Restarts, name)
	})
}

// DaemonPatience is how long the first report of a node daemon about a pod may take.
const DaemonPatience = 30 * time.Second

// Unrestartable returns the containers that only a node daemon could restart, if no daemon has reported the
// pod although it has run for DaemonPatience (IPU-312). A younger pod may still be reported; see
// [Status.NoDaemonSince].
func (c *Change) Unrestartable(pod *corev1.Pod, now time.Time) []string {
	if Reported(pod) {
		return nil
	}

	for i := range pod.Status.ContainerStatuses {
		running := pod.Status.ContainerStatuses[i].State.Running
		if running == nil {
			continue
		}
		since := running.StartedAt.Time
		// The clock of the node is behind, since no container is older than its pod.
		if since.Before(pod.CreationTimestamp.Time) {
			since = pod.CreationTimestamp.Time
		}
		if now.Sub(since) > DaemonPatience {
			return c.NeedsDaemon()
		}
	}

	return nil
}

// With returns the change with additional images and resources to restore in the pod.
func (c *Change) With(pod *corev1.Pod, images map[string]string, resources map[string]corev1.ResourceRequirements) *Change {
	if len(images)+len(resources) == 0 {
		return c
	}
	more := *c
	missing := Parts{Images: images, Resources: resources}
	more.Parts = missing.over(c.Parts)
	more.Mends, more.MendsResources = slices.Sorted(maps.Keys(images)), slices.Sorted(maps.Keys(resources))
	stops := slices.AppendSeq(slices.Clone(c.Stops), maps.Keys(images))
	for name, want := range resources {
		if container := containerOf(pod, name); container != nil && restartedBy(container, Lacking(want, container.Resources)) {
			stops = append(stops, name)
		}
	}
	slices.Sort(stops)
	more.Stops = slices.Compact(stops)
	return &more
}

// String describes the change, for events and narratives.
func (c *Change) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c.Images)) {
		parts = append(parts, fmt.Sprintf("image of %s to %s", name, c.Images[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Resources)) {
		parts = append(parts, fmt.Sprintf("resources of %s to %s", name, resourceWords(c.Resources[name])))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Refs)) {
		keys := slices.Concat(slices.Collect(maps.Keys(c.Refs[name].Labels)),
			slices.Collect(maps.Keys(c.Refs[name].Annotations)))
		slices.Sort(keys)
		parts = append(parts, fmt.Sprintf("environment of %s from %s", name, strings.Join(keys, ", ")))
	}

	if len(c.Restarts) > 0 {
		parts = append(parts, "restart of "+strings.Join(c.Restarts, ", "))
	}
	if n := len(c.Labels); n > 0 {
		parts = append(parts, "labels "+strings.Join(slices.Sorted(maps.Keys(c.Labels)), ", "))
	}
	if n := len(c.Annotations); n > 0 {
		parts = append(parts, "annotations "+strings.Join(slices.Sorted(maps.Keys(c.Annotations)), ", "))
	}
	if len(c.AddFinalizers)+len(c.RemoveFinalizers) > 0 {
		parts = append(parts, "finalizers")
	}
	if len(parts) == 0 {
		return "revision labels only"
	}

	return strings.Join(parts, "; ")
}

func (c *Change) metadata(patch *podpatch.Patch) {
	patchMetadata(patch, c.Labels, c.Annotations)
	patch.Finalizers(c.AddFinalizers, c.RemoveFinalizers)
}

func patchMetadata(patch *podpatch.Patch, labels, annotations map[string]*string) {
	for key, value := range labels {
		if value == nil {
			patch.RemoveLabel(key)
		} else {
			patch.Label(key, *value)
		}
	}

	for key, value := range annotations {
		if value == nil {
			patch.RemoveAnnotation(key)
		} else {
			patch.Annotation(key, *value)
		}
	}
}
