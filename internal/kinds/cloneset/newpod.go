package cloneset

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
)

const (
	// idAlphabet and idLength define the form of an instance ID.
	idAlphabet = "bcdfghjklmnpqrstvwxz2456789"
	idLength   = 5
)

// ids returns a function that returns a new instance ID at each call. With reuse, the IDs of live claims
// without a pod come first; random unused IDs follow. An ID is in use while its pod object exists in any
// state.
func (p *planner) ids() func() string {
	used, reusable := p.takenIDs()
	for _, id := range reusable {
		used[id] = true
	}

	if !p.set.Spec.ScaleStrategy.EnablePVCReuse {
		reusable = nil
	}

	return func() string {
		if len(reusable) > 0 {
			id := reusable[0]
			reusable = reusable[1:]
			return id
		}
		for {
			id := make([]byte, idLength)
			for i := range id {
				id[i] = idAlphabet[p.in.Random(len(idAlphabet))]
			}
			if !used[string(id)] {
				used[string(id)] = true
				return string(id)
			}
		}
	}
}

// idOf returns the instance ID of one of the set's pods.
func (p *planner) idOf(pod *corev1.Pod) string { return instanceID(pod.Labels, pod.Name, p.set.Name) }

// instanceID returns the end of the pod's name if the name begins with that of the set, and otherwise the
// pod's label. The name comes first because nobody can change it: a change of the label must neither part
// claims from their pod nor give them to another one.
func instanceID(labels map[string]string, name, set string) string {
	if id, ok := strings.CutPrefix(name, set+"-"); ok && id != "" {
		return id
	}
	return labels[pub.CloneSetInstanceID]
}

// create plans a pod of the revision and the claims that it lacks.
func (p *planner) create(id string, from *podplan.Revision) error {
	labels := map[string]string{pub.CloneSetInstanceID: id}
	identity := podplan.Identity{Name: p.set.Name + "-" + id, Suffix: id, Labels: labels, ClaimLabels: labels,
		ClaimOwners: []metav1.OwnerReference{p.core.Workload.Owner}, LookAtClaims: true}
	return p.core.NewPod(identity, from, func(claim string) bool {
		return slices.ContainsFunc(p.claimsOf[id],
			func(c *corev1.PersistentVolumeClaim) bool { return c.Name == claim })
	})
}
