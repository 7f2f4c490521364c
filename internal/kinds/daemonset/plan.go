package daemonset

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/revision"
	"github.com/afloat-project/afloat/internal/engine/rollout"
)

// Reasons that only DaemonSets use.
const (
	// ReasonNode means that the pod may not run or stay on its node, or that the node is gone.
	ReasonNode podplan.Reason = "Node"
	// ReasonExcess means that another pod has its place.
	ReasonExcess podplan.Reason = "Excess"
	// ReasonNodeSelector means that the node is not among those that are updated.
	ReasonNodeSelector podplan.Reason = "NodeSelector"
	// ReasonNodeNotReady means that the node is left out because it has not been ready for a long time.
	ReasonNodeNotReady podplan.Reason = "NodeNotReady"
	// ReasonBurst means that as many other pods as burstReplicas allows come first.
	ReasonBurst podplan.Reason = "BurstReplicas"
	// ReasonSurge means that there are already as many new pods as maxSurge allows.
	ReasonSurge podplan.Reason = "MaxSurge"
)

// Plan is what one pass is to do.
type Plan struct {
	// Set is the DaemonSet that the plan is for.
	Set *appsv1beta1.DaemonSet
	podplan.Plan
	// AdoptRevisions are revisions without a controller that become the set's (ADS-046).
	AdoptRevisions []*appsv1.ControllerRevision
	// SelectsAll reports that the selector selects everything, so that nothing is done (ADS-042).
	SelectsAll bool
	// Failures are the pods that are deleted because they ended on their node (ADS-091, ADS-092).
	Failures []Failure
	// LeftOut says which nodes the rollout leaves out. It is empty if there are none.
	LeftOut string
	// More reports that burstReplicas leaves work for the next plan, which is due as soon as this one has
	// done something.
	More bool
	// Status is the status as far as it follows from the snapshot.
	Status appsv1beta1.DaemonSetStatus
	// updates is how many sites are to be at the update revision. arrived is how many of them are, with an
	// available pod.
	updates, arrived int
	// full reports that every eligible node has an available pod.
	full bool
}

// Failure is a pod that ended on a node where it should run.
type Failure struct {
	Node string
	Pod  *corev1.Pod
}

// Arrived returns how many nodes have an available pod, plus how many of the nodes to be updated have one of
// the update revision.
func (p *Plan) Arrived() int { return int(p.Status.NumberAvailable) + p.arrived }

// site is a node and the pods that are meant for it.
type site struct {
	name string
	// node is nil if the node is gone or not known yet.
	node *corev1.Node
	nodes.Verdict
	// selected reports that the selector of the rollout selects the node. out reports that the rollout leaves
	// out the node because it has not been ready for a long time.
	selected, out bool
	// pods are all pods of the set that are meant for the node. Scheduled pods come first, then older ones.
	pods []*daemon
	// create reports that a pod is to be created here.
	create bool
}

// daemon is one pod of a site.
type daemon struct {
	pod *corev1.Pod
	// info is nil if the pod is being deleted or has ended.
	info *podplan.Pod
	new  bool
}

// ended reports whether the pod has ended and is not being deleted.
func (d *daemon) ended() bool { return d.info == nil && d.pod.DeletionTimestamp == nil }

func (d *daemon) available() bool { return d.info != nil && d.info.Available }

// planner is the working state of Make. in is what it decides from, out is what it decides, and core makes
// the decisions that all pod workloads share.
type planner struct {
	core     *podplan.Planner
	in       Snapshot
	out      *Plan
	set      *appsv1beta1.DaemonSet
	selector labels.Selector
	rules    *nodes.Rules
	// sites are in ascending order of their names. Sites without a node come last.
	sites []*site
	// homeless are pods that are not meant for any node.
	homeless []*daemon
	// strict reports that pods that are not available count for maxUnavailable, too.
	strict bool
	// burst is how many pods are created, deleted, or updated in place at most. deletions counts the planned
	// deletions, retried those among them that were refused before, and updated the planned updates in place.
	burst, deletions, retried, updated int
	// partitioned reports that partition keeps nodes without a pod from getting one.
	partitioned bool
}

// Make decides what to do. It does not change the snapshot.
func Make(s Snapshot) *Plan {
	p := &planner{in: s, set: s.Set, out: &Plan{Set: s.Set}}
	p.in.Pods = slices.SortedFunc(slices.Values(append(s.Pods[:len(s.Pods):len(s.Pods)], s.Orphans...)),
		func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	p.core = podplan.New(workloadOf(s.Set, s.Features), &p.in.Snapshot, &p.out.Plan)
	p.core.Replace = func(info *podplan.Pod, reason podplan.Reason, unstored, why string) {
		p.deletePod(info.Pod, reason, why).Unstored = unstored
	}
	p.core.Images = p.imagesToPull
	if err := p.make(); err != nil {
		p.blockOnInvalidSpec(err)
	}
	p.status()
	p.core.Conclude()
	if p.out.Waiting == nil {
		p.out.Waiting = p.core.Lingering()
	}

	return p.out
}

func (p *planner) make() (err error) {
	if p.set.DeletionTimestamp != nil {
		p.core.HoldDeleted()
		return nil
	}
	if p.selector, err = metav1.LabelSelectorAsSelector(p.set.Spec.Selector); err != nil {
		return fmt.Errorf("spec.selector: %w", err)
	}
	if p.selector.Empty() {
		p.out.SelectsAll = true
		p.core.HoldAll(podplan.ReasonBadSpec, "the selector selects everything: nothing is done")
		return nil
	}
	if err := p.core.DetermineRevisions(); err != nil {
		return err
	}
	if !p.selector.Matches(labels.Set(p.set.Spec.Template.Labels)) || inplace.Selects(p.selector) != "" {
		return fmt.Errorf(
			"spec.selector %s does not match the labels of spec.template.metadata, or asks for labels that controllers "+
				"change: no pod could be the set's", p.selector)
	}

	p.rules = nodes.ForDaemon(&p.set.Spec.Template.Spec)
	if err := p.sortSites(); err != nil {
		return err
	}
	if err := p.limits(); err != nil {
		return err
	}

	p.adopt()
	p.sortPods()
	p.core.DecideModes()
	if err := p.core.Lacks(); err != nil {
		return err
	}

	p.leaveOut()
	p.count()
	p.core.PreDownload(false)
	p.placement()
	p.specified(false)
	p.relabel()
	p.roll()
	p.specified(true)
	p.create()
	p.core.Refresh()
	p.core.HoldAll(podplan.ReasonInactive, "it is being deleted")
	return nil
}

// blockOnInvalidSpec leaves everything as it is, because the spec cannot be used. The revisions in the status
// stay, too.
func (p *planner) blockOnInvalidSpec(err error) {
	p.out.UpdateError, p.out.NewRevision, p.out.Renumber, p.core.Update, p.out.Create =
		err.Error(), nil, nil, nil, nil
	observed := len(p.core.Members) > 0
	for _, pod := range p.in.Pods {
		if !observed && readiness.Active(pod) && metav1.IsControlledBy(pod, p.set) {
			p.core.Observe(pod, false)
		}
	}
	p.core.HoldAll(podplan.ReasonBadSpec, p.out.UpdateError)
}

// sortSites creates the sites of all nodes.
func (p *planner) sortSites() error {
	selector := labels.Everything()
	if r := rollingOf(p.set); r != nil && r.Selector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(r.Selector); err != nil {
			return fmt.Errorf("spec.updateStrategy.rollingUpdate.selector: %w", err)
		}
	}
	sites := make([]site, len(p.in.Nodes))
	p.sites = make([]*site, len(p.in.Nodes))
	for i, node := range p.in.Nodes {
		sites[i] = site{name: node.Name, node: node, Verdict: p.rules.Judge(node),
			selected: selector.Matches(labels.Set(node.Labels))}
		p.sites[i] = &sites[i]
	}

	slices.SortFunc(p.sites, func(a, b *site) int { return cmp.Compare(a.name, b.name) })
	return nil
}

// desired returns how many nodes should have a pod.
func (p *planner) desired() (n int) {
	for _, l := range p.sites {
		if l.Eligible {
			n++
		}
	}
	return n
}

// limits resolves the user's numbers.
func (p *planner) limits() error {
	desired := p.desired()
	resolve := func(value *intstr.IntOrString, field string, up bool, otherwise int) (int, error) {
		if value == nil {
			return otherwise, nil
		}
		n, err := rollout.Scaled(*value, desired, up)
		if err != nil {
			return 0, fmt.Errorf("spec.%s: %w", field, err)
		}
		return n, nil
	}

	var errs [4]error
	p.out.Limits = rollout.Limits{Replicas: desired, ScaleMaxUnavailable: rollout.Unlimited}
	p.burst, errs[0] = resolve(p.set.Spec.BurstReplicas, "burstReplicas", false, 250)
	p.burst = max(p.burst, 1)
	if r := rollingOf(p.set); r != nil {
		const at = "updateStrategy.rollingUpdate."
		p.out.Limits.Partition, errs[1] = resolve(r.Partition, at+"partition", false, 0)
		if p.out.Limits.MaxSurge, errs[2] = resolve(r.MaxSurge, at+"maxSurge", true, 0); desired == 0 &&
			!isZero(r.MaxSurge) {
			p.out.Limits.MaxSurge = 1 // no old pod may go before a new one exists, even where none comes
		}
		p.out.Limits.MaxUnavailable, errs[3] = resolve(r.MaxUnavailable, at+"maxUnavailable", true, 0)
	}
	if p.out.Limits.MaxUnavailable == 0 && p.out.Limits.MaxSurge == 0 {
		p.out.Limits.MaxUnavailable = 1
	}
	p.partitioned = Partitioned(p.set) && p.out.Limits.Partition > 0
	p.strict = p.set.Annotations[pub.DaemonSetStrictMaxUnavailable] == "true"
	return errors.Join(errs[:]...)
}

// surges reports whether new pods come before old pods go.
func (p *planner) surges() bool { return p.out.Limits.MaxSurge > 0 }

// adopt adopts pods and revisions without a controller, and releases pods that the selector no longer
// matches.
func (p *planner) adopt() {
	for _, pod := range p.in.Pods {
		switch {
		case pod.DeletionTimestamp != nil:
		case metav1.GetControllerOfNoCopy(pod) == nil:
			patch := &podpatch.Patch{}
			patch.AdoptOwner(p.core.Workload.Owner)
			p.core.Decide(pod, podplan.Adopt, podplan.ReasonOrphan,
				"it has the labels of a pod of the set, and no controller").Patch = patch
		case !p.selector.Matches(labels.Set(pod.Labels)):
			patch := &podpatch.Patch{}
			patch.ReleaseOwner(string(p.set.UID))
			p.core.Decide(pod, podplan.Release, podplan.ReasonSelector,
				"its labels are not those of a pod of the set any more").Patch = patch
		}
	}

	for _, r := range p.in.Revisions {
		if metav1.GetControllerOfNoCopy(r) == nil && r.DeletionTimestamp == nil {
			p.out.AdoptRevisions = append(p.out.AdoptRevisions, r)
		}
	}
}

// sortPods assigns the pods of the set to their sites. Pods that are about to be adopted count already, so
// that no other pod is created beside them. Other decisions about them wait until they are adopted.
func (p *planner) sortPods() {
	byName := make(map[string]*site, len(p.sites))
	for _, l := range p.sites {
		byName[l.name] = l
	}

	var gone []*site
	observed := 0
	daemons := make([]daemon, len(p.in.Pods))
	for i, pod := range p.in.Pods {
		if v := p.core.Verdict(pod); v != nil && v.Action == podplan.Release {
			continue
		}
		d := &daemons[i]
		*d = daemon{pod: pod, new: p.carries(pod)}
		if readiness.Active(pod) {
			_, specified := pod.Labels[pub.SpecifiedDelete]
			p.core.Observe(pod, specified)
			d.info = p.core.Members[observed]
			observed++
			d.new = d.new && (d.info.New || !revision.SameLabel(d.info.Label, p.out.UpdateRevision))
		}

		name := nodes.Target(pod)
		if name == "" {
			p.homeless = append(p.homeless, d)
			continue
		}
		l := byName[name]
		if l == nil {
			l = &site{name: name}
			byName[name] = l
			gone = append(gone, l)
		}
		l.pods = append(l.pods, d)
	}

	p.sites = append(p.sites, gone...)
	for _, l := range p.sites {
		if len(l.pods) > 1 {
			slices.SortFunc(l.pods, func(a, b *daemon) int { return older(a.pod, b.pod) })
		}
	}
}

// older orders the pods of a node: scheduled pods first, then by age.
func older(a, b *corev1.Pod) int {
	scheduled := func(pod *corev1.Pod) int {
		if pod.Spec.NodeName != "" {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(scheduled(a), scheduled(b)),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// carries reports whether a pod carries the update revision, or another one with the same template.
func (p *planner) carries(pod *corev1.Pod) bool {
	label := pod.Labels[pub.ControllerRevisionHash]
	return revision.SameLabel(label, p.out.UpdateRevision) || p.core.SameTemplate(label)
}

// relabel gives the label of the update revision to pods of another revision with the same template.
func (p *planner) relabel() {
	for _, info := range p.core.Members {
		if p.core.Verdict(info.Pod) == nil && !revision.SameLabel(info.Label, p.out.UpdateRevision) &&
			p.core.SameTemplate(info.Label) {
			patch := &podpatch.Patch{}
			patch.Label(pub.ControllerRevisionHash, p.core.RevisionLabel())
			p.core.Decide(info.Pod, podplan.Patch, podplan.ReasonMissingLabel,
				"revision %s holds the same template as %s", info.Label, p.out.UpdateRevision).Patch = patch
		}
	}
}

// leaveOut leaves out of the rollout nodes that have not been ready for longer than the set's annotation
// allows.
func (p *planner) leaveOut() {
	text, ok := p.set.Annotations[pub.DaemonSetIgnoreNotReadyNodesAfter]
	if !ok {
		return
	}

	patience, err := time.ParseDuration(text)
	if err != nil || patience < 0 {
		p.core.Say("annotation %s is not read: %q is no duration such as 5m",
			pub.DaemonSetIgnoreNotReadyNodesAfter, text)
		return
	}

	var out []string
	for _, l := range p.sites {
		since, down := notReady(l.node)
		if !down || !l.Tolerable {
			continue
		}
		if until := since.Add(patience); p.in.Now.Before(until) {
			p.core.LookAgain(until)
			continue
		}
		l.out = true
		out = append(out, l.name)
	}

	if len(out) > 0 {
		p.out.LeftOut = fmt.Sprintf("nodes that are not ready for %s are left out of the rollout: %s", text,
			some(out))
		p.core.Say("%s", p.out.LeftOut)
	}
}

// notReady reports whether a node is not ready, and since when.
func notReady(node *corev1.Node) (since time.Time, down bool) {
	if node == nil {
		return time.Time{}, false
	}
	if ready := nodes.Ready(node); ready != nil {
		return ready.LastTransitionTime.Time, ready.Status != corev1.ConditionTrue
	}
	return node.CreationTimestamp.Time, true
}

// some returns the number of names, and a few of them.
func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return fmt.Sprintf("%d: %s", len(names), join(names))
	}
	return fmt.Sprintf("%d: %s and others", len(names), join(names[:most]))
}
