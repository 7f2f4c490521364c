package dashboard

import (
	"maps"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/kinds/uniteddeployment"
	"github.com/afloat-project/afloat/internal/plugin/commands/explain"
	"github.com/afloat-project/afloat/internal/plugin/pods"
	"github.com/afloat-project/afloat/internal/plugin/workload"
)

// The kinds that say something about the pods of a workload.
var (
	budgetKind = schema.GroupKind{Group: policyv1beta1.GroupVersion.Group, Kind: "PodUnavailableBudget"}
	spreadKind = schema.GroupKind{Group: workloadkind.CloneSet.Group, Kind: "WorkloadSpread"}
)

// workload streams a workload, its pods, and what is decided about them.
func (s *server) workload(w http.ResponseWriter, r *http.Request) {
	one, err := s.asked(r)
	if err != nil {
		refuseFor(w, err)
		return
	}
	o, err := s.get(r.Context(), one)
	if err != nil {
		refuseFor(w, err)
		return
	}

	st, end, ok := s.stream(w, r)
	if !ok {
		return
	}
	defer end()

	page := &page{
		server:   s,
		stream:   st,
		queue:    newQueue(),
		of:       one,
		object:   o,
		may:      s.rights(r.Context(), one, o),
		pods:     map[string]*corev1.Pod{},
		unowned:  map[string]*corev1.Pod{},
		sent:     map[string]tile{},
		verdicts: map[string]*explain.Pod{},
		budgets:  map[string]runtime.Object{},
		spreads:  map[string]*unstructured.Unstructured{},
		notes:    map[string]string{},
		events:   newTimeline(),
		ask:      make(chan struct{}, 1),
		dirty:    parts{object: true, asked: true},
	}
	page.owner = pods.NewChain(st.context, s.factory, o)
	page.follow()
	go page.explain()
	page.queue.put(func() {}) // the object is there already
	st.loop(page.queue, page.tick)
}

// parts says which parts of a page have changed.
type parts struct{ object, pods, budgets, subsets, events, notes, asked bool }

// page is the state of one page about a workload. Only its loop touches it.
type page struct {
	*server
	*stream
	queue *queue
	of    *object
	may   rights

	object   *unstructured.Unstructured
	owner    *pods.Chain
	pods     map[string]*corev1.Pod
	unowned  map[string]*corev1.Pod // whose controllers could not be read
	sent     map[string]tile        // as the browser has them
	verdicts map[string]*explain.Pod
	reason   reason // why the rollout waits
	budgets  map[string]runtime.Object
	spreads  map[string]*unstructured.Unstructured
	events   *timeline
	notes    map[string]string

	listed, synced bool // the list of pods is complete or not to be had, and was said to be so
	gone           bool // the workload was deleted
	dirty          parts
	ask            chan struct{} // the planner is to be asked
}

// follow watches the workload and everything that the page shows of it.
func (p *page) follow() {
	name := fields.OneTermEqualSelector("metadata.name", p.of.Name).String()
	go follow(p.context, p.dynamic.Resource(p.of.mapping.Resource).Namespace(p.of.Namespace),
		&unstructured.Unstructured{}, metav1.ListOptions{FieldSelector: name}, func(runtime.Object) {},
		telling(p, "the workload", func(o *unstructured.Unstructured, gone bool) {
			switch {
			case o.GetUID() != p.object.GetUID() && gone: // another one of the name, which was there before
			case gone:
				p.gone = true
				p.send(message{"type": "gone"})
			case p.other(o):
				p.stop() // the browser asks again, and the page begins anew
			default:
				p.object, p.dirty.object, p.dirty.asked = o, true, true
			}
		}))

	if workloadkind.Of(p.of.kind()).Schedule {
		p.listed = true // it has no pods of its own
	} else {
		p.followPods()
	}

	events := p.clients.CoreV1().Events(p.eventNamespace())
	go follow(p.context, events, &corev1.Event{}, metav1.ListOptions{}, slimEvent,
		telling(p, "events", func(e *corev1.Event, gone bool) {
			if !gone && p.concerns(e) {
				p.events.take(e)
				p.dirty.events = true
			}
		}))

	if p.of.Namespace == "" {
		return // budgets and spreads are of one namespace
	}
	go follow(p.context, p.clients.PolicyV1().PodDisruptionBudgets(p.of.Namespace),
		&policyv1.PodDisruptionBudget{}, metav1.ListOptions{}, func(runtime.Object) {},
		telling(p, "PodDisruptionBudgets", func(b *policyv1.PodDisruptionBudget, gone bool) {
			p.keepBudget("PodDisruptionBudget/"+b.Name, b, gone || !covered(p.object, b.Spec.Selector, nil))
		}))
	p.followOptional(budgetKind, func(o *unstructured.Unstructured, gone bool) {
		b := &policyv1beta1.PodUnavailableBudget{}
		if workload.Decode(o, b) == nil {
			p.keepBudget("PodUnavailableBudget/"+b.Name, b,
				gone || !covered(p.object, b.Spec.Selector, b.Spec.TargetReference))
		}
	})
	p.followOptional(spreadKind, func(o *unstructured.Unstructured, gone bool) {
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "targetRef", "kind")
		name, _, _ := unstructured.NestedString(o.Object, "spec", "targetRef", "name")
		delete(p.spreads, o.GetName())
		version, _, _ := unstructured.NestedString(o.Object, "spec", "targetRef", "apiVersion")
		if !gone && names(p.object, version, kind, name) {
			p.spreads[o.GetName()] = o
		}
		p.dirty.subsets = true
	})
}

// other reports whether an object has other pods than the one that the page is about: it was made again under the
// same name, or selects others.
func (p *page) other(o *unstructured.Unstructured) bool {
	before, _, _ := unstructured.NestedFieldNoCopy(p.object.Object, "spec", "selector")
	now, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "selector")
	return o.GetUID() != p.object.GetUID() || !equality.Semantic.DeepEqual(before, now)
}

// followOptional watches the objects of a kind that the API server may not serve.
func (p *page) followOptional(kind schema.GroupKind, take func(*unstructured.Unstructured, bool)) {
	if mapping, err := p.mapper.RESTMapping(kind); err == nil {
		go follow(p.context, p.dynamic.Resource(mapping.Resource).Namespace(p.of.Namespace),
			&unstructured.Unstructured{}, metav1.ListOptions{}, func(runtime.Object) {},
			telling(p, kind.Kind+"s", take))
	}
}

// followPods watches the pods that may belong to the workload.
func (p *page) followPods() {
	selector, err := pods.Selector(p.object)
	if err != nil {
		selector = labels.Everything()
	}
	take := telling(p, "pods", p.takePod)
	go follow(p.context, p.clients.CoreV1().Pods(p.of.Namespace), &corev1.Pod{},
		metav1.ListOptions{LabelSelector: selector.String()}, slimPod, func(c news) {
			take(c)
			if c.synced || apierrors.IsForbidden(c.err) { // there is nothing to wait for
				p.queue.put(func() { p.listed = true })
			}
		})
}

// takePod notes a pod that is new, changed or gone.
func (p *page) takePod(pod *corev1.Pod, gone bool) {
	id := idOf(pod)
	delete(p.unowned, id)
	if gone || !p.owns(pod) {
		delete(p.pods, id)
		delete(p.verdicts, id)
	} else {
		p.pods[id] = pod
	}
	p.dirty.pods, p.dirty.budgets, p.dirty.asked = true, true, true
}

// owns reports whether a pod belongs to the workload: it is controlled by it, or has its sidecars.
func (p *page) owns(pod *corev1.Pod) bool {
	if p.of.kind() == workload.SidecarSet {
		return slices.Contains(pub.InjectedSidecarSets(pod.Annotations[pub.SidecarSetInjectedList]), p.of.Name)
	}
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.UID == p.object.GetUID() {
		return true
	}
	if len(workloadkind.Of(p.of.kind()).Children) == 0 {
		return false
	}
	belongs, err := p.owner.Leads(pod)
	if err != nil {
		p.note("owners", "whose pods are these? "+err.Error())
		if len(p.unowned) == 0 {
			time.AfterFunc(askAgain, func() { p.queue.put(p.askOwners) })
		}
		p.unowned[idOf(pod)] = pod
	}
	return belongs
}

// askOwners asks again whose pods those are whose controllers could not be read.
func (p *page) askOwners() {
	p.owner.Retry()
	p.note("owners", "")
	left := p.unowned
	p.unowned = map[string]*corev1.Pod{}
	for _, pod := range left {
		p.takePod(pod, false)
	}
}

// keepBudget notes a budget that is new, changed or gone.
func (p *page) keepBudget(name string, b runtime.Object, gone bool) {
	delete(p.budgets, name)
	if !gone {
		p.budgets[name] = b
	}
	p.dirty.budgets = true
}

// note sets what the page says about a part that cannot be read; an empty text removes it.
func (p *page) note(part, text string) {
	if p.notes[part] != text {
		p.notes[part], p.dirty.notes = text, true
	}
}

// telling returns a function that passes changes of one type to the loop of the page. part names what is watched,
// for the note about what cannot be read.
func telling[O runtime.Object](p *page, part string, take func(object O, gone bool)) func(news) {
	return func(c news) {
		p.queue.put(func() {
			switch {
			case c.mayNotWatch():
				p.note(part, "you may not watch "+part+": they are read anew from time to time")
			case apierrors.IsForbidden(c.err):
				p.note(part, "you may not list "+part+": they are not shown")
			case c.err != nil:
				p.note(part, part+" are not shown: "+c.err.Error())
			case c.synced, c.well:
				if c.well { // a list that is complete says nothing about the watch
					p.note(part, "")
				}
				// What a browser knows from before is replaced, even if nothing has come.
				p.dirty.budgets, p.dirty.subsets = true, true
			default:
				if object, ok := c.object.(O); ok {
					take(object, c.gone)
				}
			}
		})
	}
}

// tick sends what has changed.
func (p *page) tick() {
	dirty := p.dirty
	p.dirty = parts{}
	dirty.object, dirty.asked = dirty.object && !p.gone, dirty.asked && !p.gone
	var messages []message

	if dirty.object {
		messages = append(messages, message{"type": "workload", "workload": p.detail()})
	}
	if dirty.object || dirty.pods {
		messages = append(messages, p.tiles()...)
	}
	if p.listed && !p.synced {
		p.synced = true
		messages = append(messages, message{"type": "podsSynced"})
	}
	if dirty.budgets {
		messages = append(messages, message{"type": "budgets", "budgets": p.budgetsShown()})
	}
	if dirty.subsets || dirty.object && p.object.GetKind() == "UnitedDeployment" {
		messages = append(messages, p.subsets()...)
	}
	if dirty.events {
		messages = append(messages, message{"type": "events", "events": p.events.latest()})
	}
	if dirty.notes {
		notes := []string{}
		for _, part := range slices.Sorted(maps.Keys(p.notes)) {
			if p.notes[part] != "" {
				notes = append(notes, p.notes[part])
			}
		}
		messages = append(messages, message{"type": "notes", "notes": notes})
	}
	p.send(messages...)

	if dirty.asked {
		select {
		case p.ask <- struct{}{}:
		default:
		}
	}
}

// tiles returns the messages about tiles that differ from what the browser has.
func (p *page) tiles() (messages []message) {
	update, label := updateRevision(p.object), pub.ControllerRevisionHash
	if p.of.kind() == workloadkind.UnitedDeployment { // the other label has revisions of its workloads
		label = uniteddeployment.RevisionHash
	}
	var changed []tile
	for _, id := range slices.Sorted(maps.Keys(p.pods)) {
		t := tileOf(p.pods[id], label, update, p.verdicts[id])
		if before, ok := p.sent[id]; !ok || !before.equal(t) {
			p.sent[id] = t
			changed = append(changed, t)
		}
	}
	var gone []string
	for id := range p.sent {
		if p.pods[id] == nil {
			delete(p.sent, id)
			gone = append(gone, id)
		}
	}
	if len(changed) > 0 {
		messages = append(messages, message{"type": "pods", "pods": changed})
	}
	if len(gone) > 0 {
		messages = append(messages, message{"type": "podsGone", "pods": gone})
	}
	return messages
}

// budgetsShown returns the budgets that cover the workload.
func (p *page) budgetsShown() []budget {
	all := []budget{}
	for _, name := range slices.Sorted(maps.Keys(p.budgets)) {
		switch b := p.budgets[name].(type) {
		case *policyv1.PodDisruptionBudget:
			all = append(all, disruptionBudget(b, p.pods))
		case *policyv1beta1.PodUnavailableBudget:
			all = append(all, unavailableBudget(b, p.pods))
		}
	}
	return all
}

// subsets returns the message about the subsets that the pods are spread over, if there are some.
func (p *page) subsets() (messages []message) {
	if p.object.GetKind() == "UnitedDeployment" {
		return []message{{
			"type": "subsets", "source": "UnitedDeployment/" + p.object.GetName(), "subsets": subsetsOf(p.object),
		}}
	}
	for _, name := range slices.Sorted(maps.Keys(p.spreads)) {
		return []message{{
			"type": "subsets", "source": "WorkloadSpread/" + name, "subsets": subsetsOf(p.spreads[name]),
		}}
	}
	return []message{{"type": "subsets", "source": "", "subsets": []subset{}}}
}

// detail is what the page shows of the workload.
type detail struct {
	row
	Generation      int64               `json:"generation"`
	UID             string              `json:"uid"`
	Paused          bool                `json:"paused"`
	UpdateRevision  string              `json:"updateRevision,omitempty"`
	CurrentRevision string              `json:"currentRevision,omitempty"`
	Conditions      []condition         `json:"conditions"`
	May             rights              `json:"may"`
	MayNot          string              `json:"mayNot,omitempty"`
	Containers      []map[string]string `json:"containers"`
	Replicas        *int64              `json:"replicas,omitempty"`
}

func (p *page) detail() detail {
	o := p.object
	d := detail{
		row:            rowOf(p.of.resource(), o).with(p.reason),
		Generation:     o.GetGeneration(),
		UID:            string(o.GetUID()),
		Paused:         workload.IsPaused(o),
		UpdateRevision: updateRevision(o),
		Conditions:     conditions(o),
		May:            p.may,
		MayNot:         p.may.reason,
		Containers:     append([]map[string]string{}, containers(o)...),
	}
	d.CurrentRevision, _, _ = unstructured.NestedString(o.Object, "status", "currentRevision")
	if replicas, ok, err := unstructured.NestedInt64(o.Object, "spec", "replicas"); ok && err == nil {
		d.Replicas = &replicas
	}
	return d
}

// updateRevision returns the revision that the pods of a workload are moved to, or an empty string.
func updateRevision(o *unstructured.Unstructured) string {
	for _, path := range [][]string{
		{"updateRevision"}, {"daemonSetHash"},
		{"updatedRevision"}, {"updateStatus", "updatedRevision"}, // of a UnitedDeployment
	} {
		if revision, _, _ := unstructured.NestedString(o.Object, append([]string{"status"}, path...)...); revision != "" {
			return revision
		}
	}
	return ""
}
