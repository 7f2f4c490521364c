package cloneset

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
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

// templates completes the pod template and the claim templates. A default that the stored object lacks is not added on an update
// either: it would make a difference between revisions where the user made none, and recreate pods that could be updated in place.
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
	found, err := r.missing(template)
	if err != nil {
		return err
	}
	lacking := map[string]bool{}
	if old, ok := oldSpec["template"].(Document); ok {
		before, err := r.missing(old)
		if err != nil {
			return fmt.Errorf("stored template: %w", err)
		}
		for _, m := range before {
			lacking[m.identity] = true
		}
	}
	for _, m := range found {
		if !lacking[m.identity] {
			d.operations = append(d.operations, jsonpatch.NewOperation("add", "/spec/template"+m.pointer, m.value))
		}
	}
	return nil
}

// missing lists all defaults that a pod template lacks.
func (r DefaultRequest) missing(template Document) ([]missingValue, error) {
	complete, err := r.Template(template)
	if err != nil {
		return nil, fmt.Errorf("completing the pod template: %w", err)
	}
	pull := map[string]bool{}
	podSpec, _ := template["spec"].(Document)
	containers, _ := podSpec["containers"].([]any)
	var found []missingValue
	for i, item := range containers {
		container, ok := item.(Document)
		if !ok {
			continue
		}
		pointer, identity := step("/spec/containers", "/spec/containers", container, i)
		if policy := container["imagePullPolicy"]; policy == nil || policy == "" {
			pull[pointer+"/imagePullPolicy"] = true
			found = append(found, missingValue{pointer + "/imagePullPolicy", identity + "/imagePullPolicy", "Always"}) // IPU-015
		}
		if r.HostPorts && podSpec["hostNetwork"] == true {
			found = append(found, hostPorts(container, pointer, identity)...)
		}
	}
	for _, m := range missingValues(template, complete, "", "") {
		switch {
		case pull[m.pointer], strings.HasSuffix(m.pointer, "/hostPort"):
			// The server has other ideas, see above.
		case m.pointer == "/spec/serviceAccount":
			// Not a default: the server repeats serviceAccountName under its old name.
		default:
			found = append(found, m)
		}
	}
	return found, nil
}

func hostPorts(container Document, pointer, identity string) []missingValue {
	var found []missingValue
	ports, _ := container["ports"].([]any)
	for i, item := range ports {
		port, ok := item.(Document)
		if ok && port["hostPort"] == nil && port["containerPort"] != nil {
			at := fmt.Sprintf("/ports/%d/hostPort", i)
			found = append(found, missingValue{pointer + at, identity + at, port["containerPort"]})
		}
	}
	return found
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

// missingValue is a value that one document has and another lacks.
type missingValue struct {
	// pointer is where it belongs; identity is the same with list items by name, to compare two documents.
	pointer, identity string
	value             any
}

// missingValues lists what complete adds to given. Lists are completed item by item; the API server keeps their order.
func missingValues(given, complete any, pointer, identity string) []missingValue {
	var found []missingValue
	switch complete := complete.(type) {
	case Document:
		given, ok := given.(Document)
		if !ok {
			return nil
		}
		for _, key := range slices.Sorted(maps.Keys(complete)) {
			value := complete[key]
			at, id := pointer+"/"+escape(key), identity+"/"+escape(key)
			switch present, ok := given[key]; {
			case value == nil:
			case !ok || present == nil:
				found = append(found, missingValue{at, id, withoutNulls(value)})
			default:
				found = append(found, missingValues(present, value, at, id)...)
			}
		}
	case []any:
		given, ok := given.([]any)
		if !ok || len(given) != len(complete) {
			return nil
		}
		for i := range complete {
			at, id := step(pointer, identity, given[i], i)
			found = append(found, missingValues(given[i], complete[i], at, id)...)
		}
	}
	return found
}

// withoutNulls removes the members without a value, such as the creation time of a template, from a value just decoded.
func withoutNulls(value any) any {
	if object, ok := value.(Document); ok {
		for key, member := range object {
			if member == nil {
				delete(object, key)
			} else {
				withoutNulls(member)
			}
		}
	}
	return value
}

func step(pointer, identity string, item any, index int) (string, string) {
	at := fmt.Sprintf("%s/%d", pointer, index)
	if object, ok := item.(Document); ok {
		if name, ok := object["name"].(string); ok {
			return at, fmt.Sprintf("%s/name=%s", identity, name)
		}
	}
	return at, fmt.Sprintf("%s/%d", identity, index)
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
