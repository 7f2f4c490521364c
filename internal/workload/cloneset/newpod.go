package cloneset

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/api/template"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

const (
	// idAlphabet and idLength make an instance ID (CS-040).
	idAlphabet = "bcdfghjklmnpqrstvwxz2456789"
	idLength   = 5
)

// ids hands out instance IDs: first, with reuse, those of live claims without a pod, then random unused ones (CS-040, CS-060, CS-065).
// An ID whose pod object still exists in any state is not free (CS-335).
func (p *planner) ids() func() string {
	used, reusable := p.takenIDs()
	for _, id := range reusable {
		used[id] = true
	}
	if !p.Set.Spec.ScaleStrategy.EnablePVCReuse {
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
				id[i] = idAlphabet[p.Random(len(idAlphabet))]
			}
			if !used[string(id)] {
				used[string(id)] = true
				return string(id)
			}
		}
	}
}

// idOf is the instance ID of one of the set's pods.
func (p *planner) idOf(pod *corev1.Pod) string { return instanceID(pod.Labels, pod.Name, p.Set.Name) }

// instanceID is the end of the pod's name, which nobody can change: claims must neither lose their pod with a label, nor go with another one that
// was given it. A pod of another name has its label.
func instanceID(labels map[string]string, name, set string) string {
	if id, ok := strings.CutPrefix(name, set+"-"); ok && id != "" {
		return id
	}
	return labels[pub.CloneSetInstanceID]
}

// create plans a pod of the revision, with the claims that it lacks (CS-040 to 046).
func (p *planner) create(id string, from *revisionInfo) error {
	creation := Creation{ID: id, Name: p.Set.Name + "-" + id, Revision: from.name}
	pod, err := p.podDocument(creation, from)
	if err != nil {
		return err
	}
	creation.Pod = pod
	for i, template := range p.claimTemplatesOf(from) {
		claim, err := p.claimDocument(template, id)
		if err != nil {
			return fmt.Errorf("claim template %d: %w", i, err)
		}
		name := object(claim, "metadata")["name"]
		exists := slices.ContainsFunc(p.claimsOf[id], func(c *corev1.PersistentVolumeClaim) bool { return c.Name == name })
		if !exists {
			creation.Claims = append(creation.Claims, claim)
		}
	}
	p.Create = append(p.Create, creation)
	return nil
}

// podDocument makes the body of the request from the stored document, so that fields our types do not know reach the pod.
func (p *planner) podDocument(creation Creation, from *revisionInfo) (map[string]any, error) {
	source, err := revision.Parse(from.template)
	if err != nil {
		return nil, fmt.Errorf("revision %s: %w", from.name, err)
	}
	meta := object(source, "metadata")
	labels := maps.Clone(object(meta, "labels"))
	if labels == nil {
		labels = map[string]any{}
	}
	maps.DeleteFunc(labels, func(key string, _ any) bool { return inplace.Own(key) })
	labels[pub.CloneSetInstanceID] = creation.ID
	labels[pub.ControllerRevisionHash] = p.revisionLabel(from.name)
	labels[pub.PodTemplateHash] = revision.ShortHash(from.name)
	labels[pub.LifecycleState] = string(pub.LifecycleStatePreparingNormal)
	annotations := maps.Clone(object(meta, "annotations"))
	if annotations == nil {
		annotations = map[string]any{}
	}
	maps.DeleteFunc(annotations, func(key string, _ any) bool { return inplace.Own(key) })
	annotations[pub.LifecycleTimestamp] = p.Now.UTC().Format(time.RFC3339)
	metadata := map[string]any{
		"name": creation.Name, "generateName": p.Set.Name + "-", "namespace": p.Set.Namespace,
		"labels": labels, "annotations": annotations, "ownerReferences": []any{p.ownerDocument()},
	}
	if finalizers, ok := meta["finalizers"]; ok && finalizers != nil {
		metadata["finalizers"] = finalizers
	}
	spec := maps.Clone(object(source, "spec"))
	if spec == nil {
		spec = map[string]any{}
	}
	spec["readinessGates"] = withGates(spec["readinessGates"], pub.InPlaceUpdateReady, pub.KruisePodReady)
	if volumes := p.claimVolumes(creation.ID, p.claimTemplatesOf(from), spec["volumes"]); len(volumes) > 0 {
		spec["volumes"] = volumes
	}
	return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, nil
}

// withGates adds readiness gates once, after the template's own (IPU-131, IPU-140).
func withGates(gates any, add ...string) []any {
	list, _ := gates.([]any)
	list = slices.Clone(list)
	for _, name := range add {
		if !slices.ContainsFunc(list, func(gate any) bool {
			g, ok := gate.(map[string]any)
			return ok && g["conditionType"] == name
		}) {
			list = append(list, map[string]any{"conditionType": name})
		}
	}
	return list
}

// claimVolumes puts the volumes of the claim templates before the template's own, in place of those of the same name (CS-045).
func (p *planner) claimVolumes(id string, templates template.VolumeClaimTemplates, own any) []any {
	var volumes []any
	ofClaims := map[string]bool{}
	for i := range templates {
		name := templates[i].Name
		ofClaims[name] = true
		volumes = append(volumes, map[string]any{"name": name,
			"persistentVolumeClaim": map[string]any{"claimName": p.claimName(name, id), "readOnly": false}})
	}
	list, _ := own.([]any)
	for _, volume := range list {
		if v, ok := volume.(map[string]any); ok {
			if name, _ := v["name"].(string); ofClaims[name] {
				continue
			}
		}
		volumes = append(volumes, volume)
	}
	return volumes
}

func (p *planner) claimName(template, id string) string {
	return template + "-" + p.Set.Name + "-" + id
}

// claimDocument makes the body of the request for a claim (CS-045).
func (p *planner) claimDocument(template template.VolumeClaimTemplate, id string) (map[string]any, error) {
	claim, err := revision.Parse(template.Raw())
	if err != nil {
		return nil, err
	}
	source := object(claim, "metadata")
	labels := maps.Clone(object(source, "labels"))
	if labels == nil {
		labels = map[string]any{}
	}
	for key, value := range p.Set.Spec.Selector.MatchLabels {
		labels[key] = value
	}
	labels[pub.CloneSetInstanceID] = id
	metadata := map[string]any{
		"name": p.claimName(template.Name, id), "namespace": p.Set.Namespace,
		"labels": labels, "ownerReferences": []any{p.ownerDocument()},
	}
	if annotations := object(source, "annotations"); len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	claim["apiVersion"], claim["kind"], claim["metadata"] = "v1", "PersistentVolumeClaim", metadata
	delete(claim, "status")
	return claim, nil
}

func (p *planner) ownerDocument() map[string]any {
	owner := ownerReference(p.Set)
	return map[string]any{"apiVersion": owner.APIVersion, "kind": owner.Kind, "name": owner.Name, "uid": string(owner.UID),
		"controller": true, "blockOwnerDeletion": true}
}

func object(doc map[string]any, key string) map[string]any {
	value, _ := doc[key].(map[string]any)
	return value
}
