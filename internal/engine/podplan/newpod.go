package podplan

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/api/template"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/lifecycle"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// Identity is what tells a new pod from the others of its workload.
type Identity struct {
	// Name is the pod's, and Suffix what the names of its claims end with.
	Name, Suffix string
	// Labels are the pod's own.
	Labels map[string]string
	// Hostname and Subdomain are set in the pod if there is a hostname.
	Hostname, Subdomain string
	// ClaimLabels are the claims' own, and ClaimOwners their owners.
	ClaimLabels map[string]string
	ClaimOwners []metav1.OwnerReference
	// Former: the pod also takes over claims of templates that its workload has no more, if its revision
	// mounts them (ASTS-110).
	Former bool
	// LookAtClaims: claims that the pod takes over may be about to go, which the API server is asked before.
	LookAtClaims bool
}

// NewPod plans a pod of the revision, with the claims that it lacks: has tells which are there (CS-040 to
// 046).
func (p *Planner) NewPod(identity Identity, from *Revision, has func(claim string) bool) error {
	creation := Creation{Name: identity.Name, Revision: from.Name}
	pod, err := p.podDocument(identity, from, has)
	if err != nil {
		return err
	}
	creation.Pod = pod
	for i, template := range p.claimTemplatesOf(from) {
		if name := p.ClaimName(template.Name, identity.Suffix); has(name) {
			if identity.LookAtClaims {
				creation.Reused = append(creation.Reused, name)
			}
			continue
		}
		claim, err := p.ClaimDocument(template, identity)
		if err != nil {
			return fmt.Errorf("claim template %d: %w", i, err)
		}
		creation.Claims = append(creation.Claims, claim)
	}
	p.out.Create = append(p.out.Create, creation)
	return nil
}

// podDocument makes the body of the request from the stored document, so that fields our types do not know
// reach the pod.
func (p *Planner) podDocument(identity Identity, from *Revision, has func(claim string) bool) (map[string]any, error) {
	source, err := p.source(from)
	if err != nil {
		return nil, err
	}
	pod := p.Body(identity.Name, source)
	labels, annotations, spec := pod.Labels, pod.Annotations, pod.Spec
	maps.DeleteFunc(labels, func(key string, _ any) bool { return inplace.Own(key) })
	for key, value := range identity.Labels {
		labels[key] = value
	}
	labels[pub.ControllerRevisionHash] = p.revisionLabel(from.Name)
	if p.Workload.Traits.TemplateHash {
		labels[pub.PodTemplateHash] = revision.ShortHash(from.Name)
	}
	maps.DeleteFunc(annotations, func(key string, _ any) bool { return inplace.Own(key) })
	if !p.Workload.Traits.Stateless {
		labels[pub.LifecycleState] = string(p.firstState(labels, object(source, "metadata")["finalizers"]))
		annotations[pub.LifecycleTimestamp] = p.in.Now.UTC().Format(time.RFC3339)
	}
	if gates := withGates(spec["readinessGates"], p.Workload.Gates); len(gates) > 0 {
		spec["readinessGates"] = gates
	}
	if identity.Hostname != "" {
		spec["hostname"], spec["subdomain"] = identity.Hostname, identity.Subdomain
	}
	var claims []string
	for _, template := range p.claimTemplatesOf(from) {
		claims = append(claims, template.Name)
	}
	if identity.Former {
		for _, name := range p.read(from.object).former(p.claimTemplatesOf(from)) {
			if has(p.ClaimName(name, identity.Suffix)) {
				claims = append(claims, name)
			}
		}
	}
	if volumes := p.claimVolumes(identity.Suffix, claims, spec["volumes"]); len(volumes) > 0 {
		spec["volumes"] = volumes
	}
	return pod.Document, nil
}

// Body is the body of a request for a pod, and its parts that may be changed.
type Body struct {
	Document                  map[string]any
	Labels, Annotations, Spec map[string]any
}

// Body makes the body of a pod of the workload from the document of a template, which stays as it is (CS-040,
// BJ-040).
func (p *Planner) Body(name string, source map[string]any) Body {
	meta := object(source, "metadata")
	b := Body{Labels: copied(meta, "labels"), Annotations: copied(meta, "annotations"), Spec: copied(source, "spec")}
	metadata := map[string]any{
		"name": name, "generateName": p.Workload.Name + "-", "namespace": p.Workload.Namespace,
		"labels": b.Labels, "annotations": b.Annotations, "ownerReferences": []any{ownerDocument(p.Workload.Owner)},
	}
	if finalizers, ok := meta["finalizers"]; ok && finalizers != nil {
		metadata["finalizers"] = finalizers
	}
	b.Document = map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": b.Spec}
	return b
}

// copied is a copy of a part of a document, empty if there is none.
func copied(document map[string]any, key string) map[string]any {
	if part := maps.Clone(object(document, key)); part != nil {
		return part
	}
	return map[string]any{}
}

// source is the template in the revision, which must not be changed. It is read once for all pods of a plan.
func (p *Planner) source(from *Revision) (map[string]any, error) {
	if source, ok := p.sources[from.Name]; ok {
		return source, nil
	}
	raw, err := revision.Template(from.object.Data.Raw)
	if err != nil {
		return nil, fmt.Errorf("revision %s: %w", from.Name, err)
	}
	source, err := revision.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("revision %s: %w", from.Name, err)
	}
	p.sources[from.Name] = source
	return source, nil
}

// withGates adds readiness gates once, after the template's own (IPU-131, IPU-140).
func withGates(gates any, add []corev1.PodConditionType) []any {
	list, _ := gates.([]any)
	list = slices.Clone(list)
	for _, name := range add {
		if !slices.ContainsFunc(list, func(gate any) bool {
			g, ok := gate.(map[string]any)
			return ok && g["conditionType"] == string(name)
		}) {
			list = append(list, map[string]any{"conditionType": string(name)})
		}
	}
	return list
}

// claimVolumes puts the volumes of the claim templates before the template's own, in place of those of the
// same name (CS-045).
func (p *Planner) claimVolumes(id string, templates []string, own any) []any {
	var volumes []any
	ofClaims := map[string]bool{}
	for _, name := range templates {
		ofClaims[name] = true
		volumes = append(volumes, map[string]any{"name": name,
			"persistentVolumeClaim": map[string]any{"claimName": p.ClaimName(name, id), "readOnly": false}})
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

// ClaimName is the name of the claim of a template for the pod with that suffix.
func (p *Planner) ClaimName(template, id string) string {
	return template + "-" + p.Workload.Name + "-" + id
}

// ClaimDocument makes the body of the request for a claim (CS-045).
func (p *Planner) ClaimDocument(template template.VolumeClaimTemplate, identity Identity) (map[string]any, error) {
	claim, err := revision.Parse(template.Raw())
	if err != nil {
		return nil, err
	}
	source := object(claim, "metadata")
	labels := copied(source, "labels")
	for key, value := range p.Workload.Selector.MatchLabels {
		labels[key] = value
	}
	for key, value := range identity.ClaimLabels {
		labels[key] = value
	}
	metadata := map[string]any{
		"name": p.ClaimName(template.Name, identity.Suffix), "namespace": p.Workload.Namespace, "labels": labels,
	}
	if len(identity.ClaimOwners) > 0 {
		owners := make([]any, len(identity.ClaimOwners))
		for i, owner := range identity.ClaimOwners {
			owners[i] = ownerDocument(owner)
		}
		metadata["ownerReferences"] = owners
	}
	if annotations := object(source, "annotations"); len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	claim["apiVersion"], claim["kind"], claim["metadata"] = "v1", "PersistentVolumeClaim", metadata
	delete(claim, "status")
	return claim, nil
}

func ownerDocument(owner metav1.OwnerReference) map[string]any {
	document := map[string]any{"apiVersion": owner.APIVersion, "kind": owner.Kind, "name": owner.Name, "uid": string(owner.UID)}
	if owner.Controller != nil {
		document["controller"] = *owner.Controller
	}
	if owner.BlockOwnerDeletion != nil {
		document["blockOwnerDeletion"] = *owner.BlockOwnerDeletion
	}
	return document
}

// firstState is the lifecycle state of a new pod with those labels and finalizers.
func (p *Planner) firstState(labels map[string]any, finalizers any) pub.LifecycleStateType {
	if !p.Workload.Traits.BornNormal {
		return pub.LifecycleStatePreparingNormal
	}
	hook := p.Hooks().PreNormal
	if hook == nil {
		return pub.LifecycleStateNormal
	}
	planned := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
	for key, value := range labels {
		planned.Labels[key], _ = value.(string)
	}
	list, _ := finalizers.([]any)
	for _, finalizer := range list {
		if name, ok := finalizer.(string); ok {
			planned.Finalizers = append(planned.Finalizers, name)
		}
	}
	if lifecycle.FullyHooked(hook, planned) {
		return pub.LifecycleStateNormal
	}
	return pub.LifecycleStatePreparingNormal
}

func object(doc map[string]any, key string) map[string]any {
	value, _ := doc[key].(map[string]any)
	return value
}
