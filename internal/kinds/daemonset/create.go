package daemonset

import (
	"reflect"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// noScheduler is the schedulerName of pods that are bound without a scheduler.
const noScheduler = "kubernetes.io/daemonset-controller"

// create plans the pods of all sites that are to get one, in the order of the nodes' names. Nodes for which creation
// failed in the last hours come last.
func (p *planner) create() {
	var missing []string
	at := map[string]*site{}
	for _, l := range p.sites {
		if l.create {
			missing, at[l.name] = append(missing, l.name), l
		}
	}

	most := min(p.core.MayTry(len(missing), p.core.ByFailure(missing), p.core.AtOnce()), p.burst)
	if most < len(missing) && p.out.ScaleError == "" {
		p.out.More = true
		p.core.Say("%s created, %s at a time", wording.Count(len(missing), "pod")+" to be",
			wording.Count(most, "pod"))
	}

	for _, node := range missing[:most] {
		if err := p.newPod(at[node]); err != nil {
			p.out.ScaleError = err.Error()
			return
		}
	}
}

// newPod plans a pod for a node.
func (p *planner) newPod(l *site) error {
	identity := podplan.Identity{Name: p.nameFor(l)}
	if generation := p.set.Annotations[pub.DaemonSetTemplateGeneration]; isNumber(generation) {
		identity.Labels = map[string]string{pub.PodTemplateGeneration: generation}
	}
	if err := p.core.NewPod(identity, p.core.Update, func(string) bool { return true }); err != nil {
		return err
	}

	creation := &p.out.Create[len(p.out.Create)-1]
	creation.Node = l.name
	pod := creation.Pod
	spec, _ := pod["spec"].(map[string]any)
	if p.in.Features.Binds {
		spec["nodeName"], spec["schedulerName"] = l.name, noScheduler
	} else {
		nodes.Pin(spec, l.name)
	}
	tolerate(spec, &p.set.Spec.Template.Spec)
	return nil
}

// isNumber reports whether a text is a whole number without a sign, as a generation is. Anything else may be
// invalid as a label.
func isNumber(text string) bool {
	_, err := strconv.ParseInt(text, 10, 64)
	return err == nil && text[0] != '+' && text[0] != '-'
}

// nameFor returns the name of the next pod of a node. It is derived from the node's name and the set's UID,
// so that two managers that both find the node empty create the same pod. If a pod that is being deleted or
// belongs to somebody else still has the name, the next name is used.
func (p *planner) nameFor(l *site) string {
	taken := map[string]bool{}
	for _, d := range l.pods {
		taken[d.pod.Name] = true
	}

	for n := 0; ; n++ {
		if name := nodes.PodName(p.set.Name, string(p.set.UID), l.name, n); !taken[name] &&
			(p.in.Taken == nil || !p.in.Taken(name)) {
			return name
		}
	}
}

// tolerate adds the tolerations that the pods of every DaemonSet have. The template's own tolerations stay as
// written.
func tolerate(spec map[string]any, template *corev1.PodSpec) {
	written, _ := spec["tolerations"].([]any)
	var all []any
	for i, t := range nodes.DaemonTolerations(template) {
		if i < len(written) && i < len(template.Tolerations) &&
			reflect.DeepEqual(t, template.Tolerations[i]) {
			all = append(all, written[i])
		} else {
			all = append(all, nodes.Document(&t))
		}
	}
	spec["tolerations"] = all
}
