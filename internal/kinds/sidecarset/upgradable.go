package sidecarset

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/readiness"
)

// upgradable tells whether the pod can be upgraded in place; if not, it gives the verdict (SS-211, SS-260,
// SS-D20).
func (p *planner) upgradable(pod *podInfo, blocked map[string]int) bool {
	if !p.in.Features.NativeSidecars {
		for i := range p.in.Set.Spec.InitContainers {
			c := &p.in.Set.Spec.InitContainers[i]
			if IsNative(&c.Container) && ImageOf(pod.Pod, c.Name) != c.Image {
				p.verdict(pod, Wait, ReasonNativeSidecars,
					"native sidecar %s is not upgraded in place: the gate SidecarSetInPlaceUpdateNativeSidecar is off, "+
						"or the server is too old", c.Name)
				return false
			}
		}
	}
	if pod.upgradable {
		return true
	}

	why := "its revision is not known any more"
	if r := p.recorded(pod.record); r != nil {
		fields, resources := p.compare(r)
		if why = strings.Join(fields, "; "); why == "" && resources {
			if why = p.unresizable(pod.Pod); why == "" {
				return true
			}
		}
		if why == "" {
			why = "its record says so"
		}
	}
	p.out.NotUpgradable++
	blocked[why]++
	v := p.verdict(pod, Wait, ReasonNotUpgradable,
		"more than images differs from what it was injected with: %s", why)
	if entry, listed := UpgradableOf(pod.Pod)[p.in.Set.Name]; !listed || entry {
		v.Upgradable = &isFalse
	}

	return false
}

// recorded returns the revision that a pod was injected with or upgraded to last, nil if it is not kept.
func (p *planner) recorded(record pub.SidecarSetRecord) *appsv1.ControllerRevision {
	var byHash *appsv1.ControllerRevision
	for _, r := range slices.Backward(p.stored) {
		hash, known := r.Annotations[pub.SidecarSetHash]
		if r.Name == record.ControllerRevision && record.ControllerRevision != "" &&
			(!known || hash == record.Hash) {
			return r
		}
		if byHash == nil && hash == record.Hash && hash != "" {
			byHash = r
		}
	}
	return byHash
}

type comparison struct {
	fields    []string
	resources bool
}

// compare names what differs between the containers of a revision and those of the SidecarSet beside images,
// and whether quantities of cpu and memory differ that can change in place (SS-W02); those are not among the
// fields then.
func (p *planner) compare(r *appsv1.ControllerRevision) (fields []string, resources bool) {
	if known, ok := p.compared[r]; ok { // of many pods
		return known.fields, known.resources
	}

	defer func() { p.compared[r] = comparison{fields, resources} }()
	before, err := Restore(&p.in.Set.Spec, r.Data.Raw)
	if err != nil {
		return []string{err.Error()}, false
	}

	old, new := documents(before), documents(&p.in.Set.Spec)
	if !slices.Equal(old.order, new.order) && sameNames(old.order, new.order) {
		fields = append(fields, "the order of the containers")
	}

	for _, name := range slices.Sorted(maps.Keys(union(old.byName, new.byName))) {
		a, was := old.byName[name]
		b, is := new.byName[name]
		switch {
		case !was:
			fields = append(fields, name+" is new")
			continue
		case !is:
			fields = append(fields, name+" is gone")
			continue
		}
		var paths []string
		for _, key := range slices.Sorted(maps.Keys(union(a, b))) {
			if key == "image" || reflect.DeepEqual(a[key], b[key]) {
				continue
			}
			if key == "resources" && p.in.Features.Resize && !new.plain[name] && resizable(a, b) {
				resources = true
				continue
			}
			paths = append(paths, key)
		}
		if len(paths) > 0 {
			fields = append(fields, name+": "+strings.Join(paths, ", "))
		}
	}

	return fields, resources
}

type containerDocuments struct {
	order  []string
	byName map[string]map[string]any
	// plain are init containers that end.
	plain map[string]bool
}

// documents are the containers that the hash is made of, as JSON.
func documents(spec *appsv1beta1.SidecarSetSpec) containerDocuments {
	out := containerDocuments{byName: map[string]map[string]any{}, plain: map[string]bool{}}
	add := func(containers []appsv1beta1.SidecarContainer) {
		for i := range containers {
			text, err := json.Marshal(&containers[i].SidecarContainerSpec)
			if err != nil {
				continue // the typed view always encodes
			}
			var document map[string]any
			if json.Unmarshal(text, &document) == nil {
				out.order = append(out.order, containers[i].Name)
				out.byName[containers[i].Name] = document
			}
		}
	}
	add(spec.Containers)
	if len(nativeSidecars(spec)) > 0 {
		add(spec.InitContainers)
	}

	for i := range spec.InitContainers {
		out.plain[spec.InitContainers[i].Name] = !IsNative(&spec.InitContainers[i].Container)
	}

	return out
}

func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func union[V any](a, b map[string]V) map[string]V {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]V{}
	}
	maps.Copy(all, b)
	return all
}

// resizable tells whether between two containers nothing of the resources but values of cpu and memory
// differs. Resources that are derived from those of other containers do not count: what they would be now is
// known to admission alone.
func resizable(a, b map[string]any) bool {
	if _, derived := b["resourcesPolicy"]; derived {
		return false
	}

	old, _ := a["resources"].(map[string]any)
	new, _ := b["resources"].(map[string]any)
	for _, kind := range slices.Sorted(maps.Keys(union(old, new))) {
		if kind != "limits" && kind != "requests" {
			if !reflect.DeepEqual(old[kind], new[kind]) {
				return false
			}
			continue
		}
		x, _ := old[kind].(map[string]any)
		y, _ := new[kind].(map[string]any)
		for name := range union(x, y) {
			from, had := x[name].(string)
			to, has := y[name].(string)
			if had != has || from != to && name != string(corev1.ResourceCPU) &&
				name != string(corev1.ResourceMemory) {
				return false
			}
			if _, err := resource.ParseQuantity(to); err != nil {
				return false
			}
		}
	}

	return true
}

// unresizable says why the quantities of the SidecarSet cannot be given to the pod, empty if they can
// (SS-W02).
func (p *planner) unresizable(pod *corev1.Pod) string {
	changes := p.quantities(pod)
	if len(changes) == 0 {
		return ""
	}

	after := pod.Spec.DeepCopy()
	for _, containers := range [][]corev1.Container{after.Containers, after.InitContainers} {
		for i := range containers {
			change, ok := changes[containers[i].Name]
			if !ok {
				continue
			}
			r := &containers[i].Resources
			r.Limits, r.Requests = withQuantities(r.Limits, change.Limits),
				withQuantities(r.Requests, change.Requests)
		}
	}

	if from, to := inplace.QualityOfService(&pod.Spec), inplace.QualityOfService(after); from != to {
		return fmt.Sprintf("resources would change the QoS class from %s to %s", from, to)
	}

	return ""
}

func withQuantities(a, b corev1.ResourceList) corev1.ResourceList {
	all := corev1.ResourceList{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// quantities are those that the pod's containers are to be given: where the SidecarSet asks for something
// else than when the pod was injected, or upgraded last. What others gave it stays, such as an autoscaler, as
// far as it does not contradict that.
func (p *planner) quantities(pod *corev1.Pod) map[string]corev1.ResourceRequirements {
	changes := map[string]corev1.ResourceRequirements{}
	before, known := p.given(pod)
	add := func(spec *appsv1beta1.SidecarContainer, name string) {
		container, _ := containerOf(pod, name)
		if container == nil || spec.ResourcesPolicy != nil {
			return
		}
		want := inplace.Quantities(spec.Resources)
		change := want
		if known {
			change = corev1.ResourceRequirements{}
			for _, former := range before {
				differs := inplace.Lacking(want, former[spec.Name])
				change.Limits, change.Requests = withQuantities(change.Limits, differs.Limits),
					withQuantities(change.Requests, differs.Requests)
			}
		}
		change = coherent(change, want, container.Resources)
		if lacking := inplace.Lacking(change,
			container.Resources); len(lacking.Limits)+len(lacking.Requests) > 0 {
			changes[name] = lacking
		}
	}

	for i := range p.in.Set.Spec.Containers {
		c := &p.in.Set.Spec.Containers[i]
		if IsHot(c) {
			first, second := HotNames(c.Name)
			add(c, first)
			add(c, second)
		} else {
			add(c, c.Name)
		}
	}

	for i := range p.in.Set.Spec.InitContainers {
		if c := &p.in.Set.Spec.InitContainers[i]; IsNative(&c.Container) {
			add(c, c.Name)
		}
	}

	return changes
}

// given are the quantities, by container of the SidecarSet, that the pod was injected with or upgraded to
// last, and those of an upgrade that was begun; it is not known if a revision is not kept.
func (p *planner) given(pod *corev1.Pod) (all []map[string]corev1.ResourceRequirements, known bool) {
	records, err := ReadRecords(pod.Annotations[pub.SidecarSetHash])
	if err != nil {
		return nil, false
	}

	revisions := []*appsv1.ControllerRevision{p.recorded(records[p.in.Set.Name])}
	if states, err := ReadStates(pod.Annotations[pub.SidecarSetInPlaceUpdateState]); err == nil {
		for _, begun := range states[p.in.Set.Name].Resizing {
			if begun != p.hash {
				revisions = append(revisions, p.recorded(pub.SidecarSetRecord{Hash: begun}))
			}
		}
	}
	p.sizing.Lock() // pods are changed in parallel
	defer p.sizing.Unlock()
	for _, r := range revisions {
		if r == nil {
			return nil, false
		}
		quantities, ok := p.sizes[r]
		if !ok {
			spec, err := Restore(&p.in.Set.Spec, r.Data.Raw)
			if err != nil {
				return nil, false
			}
			quantities = map[string]corev1.ResourceRequirements{}
			for _, list := range [][]appsv1beta1.SidecarContainer{spec.InitContainers, spec.Containers} {
				for i := range list {
					quantities[list[i].Name] = inplace.Quantities(list[i].Resources)
				}
			}
			p.sizes[r] = quantities
		}
		all = append(all, quantities)
	}

	return all, true
}

// coherent adds to a change what the server would refuse it without: the request that is wanted, where the
// present one is above the new limit, and the limit, where the present one is below the new request.
func coherent(change, want, have corev1.ResourceRequirements) corev1.ResourceRequirements {
	after := corev1.ResourceRequirements{Limits: withQuantities(have.Limits, change.Limits),
		Requests: withQuantities(have.Requests, change.Requests)}
	for name, limit := range after.Limits {
		request, requested := after.Requests[name]
		if !requested || request.Cmp(limit) <= 0 {
			continue
		}
		if quantity, ok := want.Limits[name]; ok {
			change.Limits = withQuantities(change.Limits, corev1.ResourceList{name: quantity})
		}
		if quantity, ok := want.Requests[name]; ok {
			change.Requests = withQuantities(change.Requests, corev1.ResourceList{name: quantity})
		}
	}

	return change
}

// resize gives the pod the quantities of the SidecarSet, if it was injected with others.
func (p *planner) resize(pod *corev1.Pod) *podpatch.Patch {
	patch := &podpatch.Patch{}
	if !p.in.Features.Resize {
		return patch
	}

	records, err := ReadRecords(pod.Annotations[pub.SidecarSetHashWithoutImage])
	states, errStates := ReadStates(pod.Annotations[pub.SidecarSetInPlaceUpdateState])
	// it may have been given what the record does not tell
	begun := errStates == nil && len(states[p.in.Set.Name].Resizing) > 0
	if err != nil || records[p.in.Set.Name].Hash == p.hashWithoutImage && !begun {
		return patch
	}

	changes := p.quantities(pod)
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		patch.Resources(name, changes[name])
	}

	return patch
}

// infeasible says that the node cannot give a sidecar the resources that it was given by an upgrade (SS-W02).
func (p *planner) infeasible(pod *corev1.Pod) string {
	if !p.in.Features.Resize {
		return ""
	}

	pending := readiness.Condition(pod, corev1.PodResizePending)
	if pending == nil || pending.Status != corev1.ConditionTrue ||
		pending.Reason != corev1.PodReasonInfeasible ||
		// of an earlier size of the pod
		pending.ObservedGeneration > 0 && pending.ObservedGeneration < pod.Generation {
		return ""
	}
	if lacking := p.unresized(pod); lacking != "" {
		return fmt.Sprintf("%s: %s", lacking, pending.Message)
	}

	return ""
}

// unresized says which sidecar runs without the resources of the pod's spec, where they change in place.
func (p *planner) unresized(pod *corev1.Pod) string {
	if !p.in.Features.Resize {
		return ""
	}

	for _, name := range PodNames(&p.in.Set.Spec) {
		container, status := containerOf(pod, name)
		if container == nil || status == nil || status.Resources == nil || status.State.Running == nil {
			continue
		}
		if lacking := inplace.Lacking(inplace.Quantities(container.Resources),
			*status.Resources); len(lacking.Limits)+len(lacking.Requests) > 0 {
			return fmt.Sprintf("container %s does not have its resources yet", name)
		}
	}

	return ""
}

// differences is what keeps pods from being upgraded, with the numbers of pods (SS-D20).
func differences(blocked map[string]int) string {
	parts := make([]string, 0, len(blocked))
	for _, why := range slices.Sorted(maps.Keys(blocked)) {
		parts = append(parts, fmt.Sprintf("%d: %s", blocked[why], why))
	}
	return strings.Join(parts, " | ")
}
