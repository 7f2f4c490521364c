package cloneset

import (
	"encoding/json"
	"fmt"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/runtime"
)

// Document is a JSON object as an admission request holds it; numbers are json.Number or float64, they are only carried around.
type Document = map[string]any

// DefaultRequest is what is needed to fill in what a user left out of a CloneSet.
type DefaultRequest struct {
	// Version of the document, v1alpha1 or v1beta1.
	Version string
	// New is the document to be completed. It is not modified.
	New Document
	// Template, if not nil, returns the pod template as the API server would complete it. Nil with gate TemplateNoDefaults, and
	// on updates that leave the template alone (CS-014).
	Template func(template Document) (Document, error)
	// Old is the stored document, nil on create.
	Old Document
	// HostPorts is gate DefaultHostNetworkHostPortsInPodTemplates.
	HostPorts bool
}

// Default returns the JSON patch that completes a CloneSet (CS-010 to CS-015). It only ever adds what is missing, so fields that
// nobody here knows stay as they are. An error of Template comes with the other defaults.
func Default(r DefaultRequest) ([]jsonpatch.Operation, error) {
	spec, ok := r.New["spec"].(Document)
	if !ok {
		return nil, nil // the schema or validation refuses it
	}
	var d defaulter
	d.add(spec, "/spec", "replicas", 1)
	d.add(spec, "/spec", "revisionHistoryLimit", 10)
	d.strategy(spec, r.Version)
	err := d.templates(spec, r)
	return d.operations, err
}

type defaulter struct{ operations []jsonpatch.Operation }

// add adds a value unless there is one; null and the empty text are none. It returns the value that then holds.
func (d *defaulter) add(object Document, pointer, key string, value any) any {
	if present, ok := object[key]; ok && present != nil && present != "" {
		return present
	}
	d.operations = append(d.operations, jsonpatch.NewOperation("add", pointer+"/"+escape(key), value))
	return value
}

// object returns the object at key, to be completed in place. If there is none it is put into the patch, complete with everything
// that fill adds to it.
func (d *defaulter) object(parent Document, pointer, key string, fill func(d *defaulter, object Document, pointer string)) {
	switch present := parent[key].(type) {
	case Document:
		fill(d, present, pointer+"/"+escape(key))
	case nil:
		var inner defaulter
		made := Document{}
		fill(&inner, made, "")
		for _, op := range inner.operations {
			made[strings.TrimPrefix(op.Path, "/")] = op.Value
		}
		d.operations = append(d.operations, jsonpatch.NewOperation("add", pointer+"/"+escape(key), made))
	}
}

// strategy completes updateStrategy: CS-011 for v1beta1, CS-012 for v1alpha1.
func (d *defaulter) strategy(spec Document, version string) {
	pace := func(d *defaulter, o Document, pointer string) {
		d.add(o, pointer, "partition", 0)
		d.add(o, pointer, "maxUnavailable", "20%")
		d.add(o, pointer, "maxSurge", 0)
	}
	inPlace := func(d *defaulter, o Document, pointer string, policy any) {
		if policy == "InPlaceIfPossible" || policy == "InPlaceOnly" {
			d.add(o, pointer, "inPlaceUpdateStrategy", Document{})
		}
	}
	if version == "v1alpha1" {
		d.object(spec, "/spec", "updateStrategy", func(d *defaulter, o Document, pointer string) {
			policy := d.add(o, pointer, "type", "ReCreate")
			pace(d, o, pointer)
			inPlace(d, o, pointer, policy)
		})
		return
	}
	rolling := func(d *defaulter, o Document, pointer string) {
		policy := d.add(o, pointer, "podUpdatePolicy", "ReCreate")
		pace(d, o, pointer)
		inPlace(d, o, pointer, policy)
	}
	d.object(spec, "/spec", "updateStrategy", func(d *defaulter, o Document, pointer string) {
		if d.add(o, pointer, "type", "RollingUpdate") == "RollingUpdate" {
			d.object(o, pointer, "rollingUpdate", rolling)
		}
	})
}

// templates completes the pod template and the claim templates. Where the API server cannot be asked about an update, the template keeps
// the defaults that are stored; the error comes with them.
func (d *defaulter) templates(spec Document, r DefaultRequest) error {
	if r.Template == nil {
		return nil
	}
	oldSpec, _ := r.Old["spec"].(Document)
	d.claims(spec, oldSpec)
	template, ok := spec["template"].(Document)
	if !ok {
		return nil
	}
	stored, ours := oldSpec["template"], r.withOurs(template)
	found := missingValues(template, ours, stored, "")
	complete, err := r.Template(ours)
	if err == nil {
		for _, m := range missingValues(ours, complete, stored, "") {
			// No defaults: the server repeats serviceAccountName under its old name, and which ports are host ports is said by a
			// gate of ours.
			if m.pointer != "/spec/serviceAccount" && !strings.HasSuffix(m.pointer, "/hostPort") {
				found = append(found, m)
			}
		}
	} else {
		found = append(found, keptValues(ours, stored)...)
		err = fmt.Errorf("completing the pod template: %w", err)
	}
	for _, m := range found {
		d.operations = append(d.operations, jsonpatch.NewOperation("add", "/spec/template"+m.pointer, m.value))
	}
	return err
}

// withOurs returns a copy of a pod template with the defaults that the API server does not know or sees differently.
func (r DefaultRequest) withOurs(template Document) Document {
	template = runtime.DeepCopyJSON(template)
	podSpec, _ := template["spec"].(Document)
	containers, _ := podSpec["containers"].([]any)
	for _, item := range containers {
		container, _ := item.(Document)
		if policy := container["imagePullPolicy"]; container != nil && (policy == nil || policy == "") {
			container["imagePullPolicy"] = "Always" // IPU-015
		}
		ports, _ := container["ports"].([]any)
		for _, item := range ports {
			port, _ := item.(Document)
			if r.HostPorts && podSpec["hostNetwork"] == true && port["hostPort"] == nil && port["containerPort"] != nil {
				port["hostPort"] = port["containerPort"]
			}
		}
	}
	return template
}

// claims completes claim templates by what the API server would fill in.
func (d *defaulter) claims(spec, oldSpec Document) {
	lacking := map[string]bool{}
	old, _ := oldSpec["volumeClaimTemplates"].([]any)
	for _, item := range old {
		if name, claim := claimSpec(item); claim != nil && claim["volumeMode"] == nil {
			lacking[name] = true
		}
	}
	claims, _ := spec["volumeClaimTemplates"].([]any)
	for i, item := range claims {
		if name, claim := claimSpec(item); claim != nil && !lacking[name] {
			d.add(claim, fmt.Sprintf("/spec/volumeClaimTemplates/%d/spec", i), "volumeMode", "Filesystem")
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

func escape(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

// SameTemplate tells whether two CloneSets of one version have the same pod template, as documents.
func SameTemplate(a, b Document) bool { return sameField(a, b, "template") }

func sameField(a, b Document, key string) bool {
	specA, _ := a["spec"].(Document)
	specB, _ := b["spec"].(Document)
	left, err := json.Marshal(specA[key])
	if err != nil {
		return false
	}
	right, err := json.Marshal(specB[key])
	return err == nil && string(left) == string(right)
}
