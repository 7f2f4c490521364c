package persistentpodstate

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
)

// leastWeight and mostWeight bound the weight of a preference.
const leastWeight, mostWeight = 1, 100

// Bounds of what is remembered (PPS-083): MostValue of the value of an annotation, as the caches keep it,
// mostOfAll of all entries together. An object has 1.5 MiB at most.
const (
	MostValue = 1 << 10
	mostOfAll = 1 << 20
)

// Workload is what is read of a workload.
type Workload struct {
	Reference
	// APIVersion is the one in which it is served.
	APIVersion  string
	UID         types.UID
	Created     time.Time
	Terminating bool
	// Orphans: it is being deleted without what belongs to it.
	Orphans     bool
	Annotations map[string]string
	// Slots are the ordinals in use; nil if they cannot be told (PPS-016, PPS-061).
	Slots *statefulset.Slots
}

// Snapshot is what a plan is made from.
type Snapshot struct {
	State *appsv1beta1.PersistentPodState
	// Workload is nil if there is none.
	Workload *Workload
	// Pods are those that it controls; without a workload those with the names that are remembered.
	Pods []*corev1.Pod
	// Nodes are the labels of nodes, by name, as far as they could be read.
	Nodes map[string]map[string]string
	// Gone are pods whose nodes were looked for in the API server and do not exist, and whose must no other
	// node can keep; nil without gate PersistentPodStateAutoCleanup (PPS-105).
	Gone map[string]bool
}

// Plan is what becomes of what is remembered.
type Plan struct {
	Status appsv1beta1.PersistentPodStateStatus
	// Forgotten are the pods whose entries go because of the workload, Moved those that were remembered
	// elsewhere, Cleaned those whose nodes are gone; in the order of their names.
	Forgotten, Moved, Cleaned []string
	// Unread are nodes of pods that could not be read (PPS-053), Full the pods for which there is no room,
	// Odd the entries without an ordinal (PPS-062).
	Unread, Full, Odd []string
	// Missing are keys of labels that no node has on which pods are ready.
	Missing []string
}

// ReadyOn are the pods that are remembered, with their nodes: those that are ready (PPS-048, PPS-050).
func ReadyOn(pods []*corev1.Pod) []*corev1.Pod {
	var ready []*corev1.Pod
	for _, pod := range pods {
		if readiness.Active(pod) && readiness.Ready(pod) && pod.Spec.NodeName != "" {
			ready = append(ready, pod)
		}
	}
	slices.SortFunc(ready, func(a, b *corev1.Pod) int {
		first, _ := Ordinal(a.Name)
		second, _ := Ordinal(b.Name)
		return cmp.Or(cmp.Compare(first, second), cmp.Compare(a.Name, b.Name))
	})
	return ready
}

// Make plans what is remembered.
func Make(s *Snapshot) *Plan {
	old := s.State.Status.PodStates
	p := &Plan{
		Status: appsv1beta1.PersistentPodStateStatus{
			ObservedGeneration: s.State.Generation,
			PodStates:          maps.Clone(old),
		},
	}
	active, recorded := map[string]bool{}, map[string]bool{}
	for _, pod := range s.Pods {
		active[pod.Name] = active[pod.Name] || readiness.Active(pod)
	}
	switch {
	case s.Workload != nil && s.Workload.Orphans:
		return p
	case s.Workload == nil || s.Workload.Terminating:
		for _, name := range slices.Sorted(maps.Keys(old)) {
			if s.Workload != nil || !active[name] {
				p.Forgotten = append(p.Forgotten, name)
				delete(p.Status.PodStates, name)
			}
		}
		if len(p.Status.PodStates) == 0 {
			p.Status.PodStates = nil
		}
		return p
	}
	p.record(s, recorded)
	for _, name := range slices.Sorted(maps.Keys(p.Status.PodStates)) {
		ordinal, ok := Ordinal(name)
		switch {
		case recorded[name]:
		case s.Gone[name]:
			p.Cleaned = append(p.Cleaned, name)
			delete(p.Status.PodStates, name)
		case s.State.Spec.PersistentPodStateRetentionPolicy == appsv1beta1.RetainWhenDeleted ||
			s.Workload.Slots == nil:
		case !ok:
			p.Odd = append(p.Odd, name)
		case !active[name]:
			if _, used := s.Workload.Slots.Rank(ordinal); !used {
				p.Forgotten = append(p.Forgotten, name)
				delete(p.Status.PodStates, name)
			}
		}
	}
	return p
}

// record remembers where pods are ready, and names them.
func (p *Plan) record(s *Snapshot, recorded map[string]bool) {
	keys, size, unread := Keys(s.State), 0, map[string]bool{}
	missing := map[string]bool{}
	for name, entry := range p.Status.PodStates {
		size += sizeOf(name, entry)
	}
	for _, pod := range ReadyOn(s.Pods) {
		node, read := s.Nodes[pod.Spec.NodeName]
		if !read {
			unread[pod.Spec.NodeName] = true
			continue
		}
		if len(recorded) == 0 { // the first one
			for _, key := range keys {
				missing[key] = true
			}
		}
		entry := appsv1beta1.PodState{NodeName: pod.Spec.NodeName, NodeTopologyLabels: some(keys, node)}
		for key := range entry.NodeTopologyLabels {
			delete(missing, key)
		}
		var annotations []string
		for _, annotation := range s.State.Spec.PersistentPodAnnotations {
			if len(pod.Annotations[annotation.Key]) <= MostValue {
				annotations = append(annotations, annotation.Key)
			}
		}
		entry.Annotations = some(annotations, pod.Annotations)
		before, known := p.Status.PodStates[pod.Name]
		recorded[pod.Name] = true
		if known && same(before, entry) {
			continue
		}
		more := sizeOf(pod.Name, entry)
		if known {
			more -= sizeOf(pod.Name, before)
		}
		if more > 0 && size+more > mostOfAll {
			p.Full = append(p.Full, pod.Name)
			continue
		}
		size += more
		if known && before.NodeName != entry.NodeName {
			p.Moved = append(p.Moved, pod.Name)
		}
		if p.Status.PodStates == nil {
			p.Status.PodStates = map[string]appsv1beta1.PodState{}
		}
		p.Status.PodStates[pod.Name] = entry
	}
	slices.Sort(p.Moved)
	p.Unread, p.Missing = slices.Sorted(maps.Keys(unread)), slices.Sorted(maps.Keys(missing))
}

// Must are the labels that a pod must find at a node, as they are remembered; nil if there are none.
func Must(state *appsv1beta1.PersistentPodState, pod string) map[string]string {
	if state.Spec.RequiredPersistentTopology == nil {
		return nil
	}
	return some(state.Spec.RequiredPersistentTopology.Keys, state.Status.PodStates[pod].NodeTopologyLabels)
}

// Keeps tells whether a node with these labels can keep a must.
func Keeps(labels, must map[string]string) bool {
	for key, value := range must {
		if found, has := labels[key]; !has || found != value {
			return false
		}
	}
	return true
}

// Keys are the labels of nodes that are remembered, each once.
func Keys(state *appsv1beta1.PersistentPodState) (keys []string) {
	add := func(of []string) {
		for _, key := range of {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	if required := state.Spec.RequiredPersistentTopology; required != nil {
		add(required.Keys)
	}
	for i := range state.Spec.PreferredPersistentTopology {
		add(state.Spec.PreferredPersistentTopology[i].Preference.Keys)
	}
	return keys
}

// some are those values of a map that have one of the keys; nil if there are none.
func some(keys []string, of map[string]string) (found map[string]string) {
	for _, key := range keys {
		if value, ok := of[key]; ok {
			if found == nil {
				found = map[string]string{}
			}
			found[key] = value
		}
	}
	return found
}

func same(a, b appsv1beta1.PodState) bool {
	return a.NodeName == b.NodeName && maps.Equal(a.NodeTopologyLabels, b.NodeTopologyLabels) &&
		maps.Equal(a.Annotations, b.Annotations)
}

// around is about how much JSON there is around the texts of an entry, and of a value.
const around, aroundValue = 64, 6

func sizeOf(name string, entry appsv1beta1.PodState) int {
	size := around + len(name) + len(entry.NodeName)
	for _, texts := range []map[string]string{entry.NodeTopologyLabels, entry.Annotations} {
		for key, value := range texts {
			size += aroundValue + len(key) + escaped(value)
		}
	}
	return size
}

// escaped is how long a text is in JSON, at most.
func escaped(text string) (length int) {
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\', c >= 0x80: // two line separators of three bytes are written with six
			length += 2
		case c < ' ' || c == '<' || c == '>' || c == '&':
			length += 6
		default:
			length++
		}
	}
	return length
}

// Ordinal is the number behind the last dash of the name of a pod.
func Ordinal(name string) (int32, bool) {
	text := name[strings.LastIndexByte(name, '-')+1:]
	if len(text) == len(name) || text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	number, err := strconv.ParseInt(text, 10, 32)
	return int32(number), err == nil
}
