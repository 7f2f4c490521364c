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
	// idAlphabet and idLength make an instance ID.
	idAlphabet = "bcdfghjklmnpqrstvwxz2456789"
	idLength   = 5
)

// ids hands out instance IDs: first, with reuse, those of live claims without a pod, then random unused ones.
// An ID whose pod object still exists in any state is not free.
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

// idOf is the instance ID of one of the set's pods.
func (p *planner) idOf(pod *corev1.Pod) string { return instanceID(pod.Labels, pod.Name, p.set.Name) }

// instanceID is the end of the pod's name, which nobody can change: claims must neither lose their pod with a
// label, nor go with another one that was given it. A pod of another name has its label.
func instanceID(labels map[string]string, name, set string) string {
	if id, ok := strings.CutPrefix(name, set+"-"); ok && id != "" {
		return id
	}
	return labels[pub.CloneSetInstanceID]
}

// create plans a pod of the revision, with the claims that it lacks (CS-040 to 046).
func (p *planner) create(id string, from *podplan.Revision) error {
	labels := map[string]string{pub.CloneSetInstanceID: id}
	identity := podplan.Identity{Name: p.set.Name + "-" + id, Suffix: id, Labels: labels, ClaimLabels: labels,
		ClaimOwners: []metav1.OwnerReference{p.core.Workload.Owner}, LookAtClaims: true}
	return p.core.NewPod(identity, from, func(claim string) bool {
		return slices.ContainsFunc(p.claimsOf[id],
			func(c *corev1.PersistentVolumeClaim) bool { return c.Name == claim })
	})
}
