// Package podtemplate completes what a user left out of a workload with a pod template, as the patch with
// which a mutating webhook answers. It only adds what is missing, so that fields that are unknown here stay
// unchanged.
package podtemplate

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/go-openapi/jsonpointer"
	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/runtime"
)

// Document is a JSON object in an admission request. Its numbers are json.Number or float64 and are only
// copied.
type Document = map[string]any

// Defaults collects the JSON patch that completes an object.
type Defaults struct{ Operations []jsonpatch.Operation }

// Add adds a value unless there is one already; null and the empty string do not count. It returns the
// resulting value.
func (d *Defaults) Add(object Document, pointer, key string, value any) any {
	if present, ok := object[key]; ok && present != nil && present != "" {
		return present
	}
	d.Operations = append(d.Operations, jsonpatch.NewOperation("add", pointer+"/"+jsonpointer.Escape(key), value))
	return value
}

// Object calls fill to complete the object at key. If there is none, it adds one to the patch that contains
// everything that fill adds.
func (d *Defaults) Object(
	parent Document, pointer, key string, fill func(d *Defaults, object Document, pointer string),
) {
	switch present := parent[key].(type) {
	case Document:
		fill(d, present, pointer+"/"+jsonpointer.Escape(key))
	case nil:
		var inner Defaults
		made := Document{}
		fill(&inner, made, "")
		for _, op := range inner.Operations {
			made[strings.TrimPrefix(op.Path, "/")] = op.Value
		}
		d.Operations = append(d.Operations, jsonpatch.NewOperation("add", pointer+"/"+jsonpointer.Escape(key), made))
	}
}

// Request defines how templates are completed.
type Request struct {
	// Complete, if not nil, returns the pod template as the API server would complete it. It is nil with gate
	// TemplateNoDefaults, and on updates that do not change the template (CS-014).
	Complete func(template Document) (Document, error)
	// HostPorts is the value of gate DefaultHostNetworkHostPortsInPodTemplates.
	HostPorts bool
	// Plain leaves out this project's own defaults, for workloads of Kubernetes itself.
	Plain bool
}

// Templates completes the pod template and the claim templates of a spec; old is the stored spec, nil on
// create. If the API server cannot complete the template, the template keeps the stored defaults, and the
// error is returned as well.
func (d *Defaults) Templates(spec, old Document, r Request) error {
	if r.Complete == nil {
		return nil
	}

	d.claims(spec, old)
	template, ok := spec["template"].(Document)
	if !ok {
		return nil
	}

	stored, ours := old["template"], r.withOurs(template)
	found := missingValues(template, ours, stored, "")
	complete, err := r.Complete(ours)
	if err == nil {
		for _, m := range missingValues(ours, complete, stored, "") {
			// These are no defaults: the API server repeats serviceAccountName under its old name, and which
			// ports are host ports is defined by a gate of this project.
			if m.pointer != "/spec/serviceAccount" && !strings.HasSuffix(m.pointer, "/hostPort") {
				found = append(found, m)
			}
		}
	} else {
		found = append(found, keptValues(ours, stored)...)
		err = fmt.Errorf("completing the pod template: %w", err)
	}

	for _, m := range found {
		d.Operations = append(d.Operations,
			jsonpatch.NewOperation("add", "/spec/template"+m.pointer, m.value))
	}

	return err
}

// withOurs returns a copy of a pod template with the defaults that the API server does not set, or sets
// differently.
func (r Request) withOurs(template Document) Document {
	template = runtime.DeepCopyJSON(template)
	if r.Plain {
		return template
	}

	podSpec, _ := template["spec"].(Document)
	containers, _ := podSpec["containers"].([]any)
	for _, item := range containers {
		container, _ := item.(Document)
		if policy := container["imagePullPolicy"]; container != nil && (policy == nil || policy == "") {
			container["imagePullPolicy"] = "Always"
		}
		ports, _ := container["ports"].([]any)
		for _, item := range ports {
			port, _ := item.(Document)
			if r.HostPorts && podSpec["hostNetwork"] == true &&
				port["hostPort"] == nil && port["containerPort"] != nil {
				port["hostPort"] = port["containerPort"]
			}
		}
	}

	return template
}

// claims adds the defaults of the API server to claim templates.
func (d *Defaults) claims(spec, old Document) {
	lacking := map[string]bool{}
	stored, _ := old["volumeClaimTemplates"].([]any)
	for _, item := range stored {
		if name, claim := claimSpec(item); claim != nil && claim["volumeMode"] == nil {
			lacking[name] = true
		}
	}

	claims, _ := spec["volumeClaimTemplates"].([]any)
	for i, item := range claims {
		if name, claim := claimSpec(item); claim != nil && !lacking[name] {
			d.Add(claim, fmt.Sprintf("/spec/volumeClaimTemplates/%d/spec", i), "volumeMode", "Filesystem")
		}
	}
}

func claimSpec(item any) (string, Document) {
	claim, _ := item.(Document)
	meta, _ := claim["metadata"].(Document)
	name, _ := meta["name"].(string)
	spec, _ := claim["spec"].(Document)
	return name, spec
}

// SameTemplate reports whether two workloads of the same version have the same pod template, as documents.
func SameTemplate(a, b Document) bool {
	specA, _ := a["spec"].(Document)
	specB, _ := b["spec"].(Document)
	left, err := json.Marshal(specA["template"])
	if err != nil {
		return false
	}
	right, err := json.Marshal(specB["template"])
	return err == nil && string(left) == string(right)
}
