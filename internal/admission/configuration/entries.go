package configuration

import (
	"maps"
	"net/url"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json" // decodes numbers like those of live objects
)

// Derived is an entry that the leader creates: a copy of the entry From, right before it, with a name, a path
// and a scope of its own. It is not in the manifests, so that applying them again neither removes its
// conditions nor causes a conflict (OPS-062).
type Derived struct {
	// Kind is the kind of the configuration, MutatingWebhookConfiguration or ValidatingWebhookConfiguration.
	Kind             string
	From, Name, Path string
	// Fields replace fields of the entry From; nil replaces none.
	Fields map[string]any
}

// derive rebuilds the derived entries of a configuration. While the scope of an entry is unknown, an existing
// entry stays as it is and a missing one is not created.
func (p *Publisher) derive(kind string, entries []any, found *Report) []any {
	if p.External {
		return entries
	}

	for i := range p.Derived {
		d := &p.Derived[i]
		if d.Kind != kind || !p.Paths[d.Path] {
			continue
		}

		had, from := slices.IndexFunc(entries, named(d.Name)), slices.IndexFunc(entries, named(d.From))
		conditions, known := p.Scopes[d.Name].Conditions()
		if !p.leads() || from < 0 || !known {
			if had < 0 && from >= 0 {
				found.Lacking = "the leader has not added the webhook " + d.Name + " yet"
			}
			continue
		}

		entry := runtime.DeepCopyJSON(entries[from].(map[string]any))
		entry["name"] = d.Name
		redirect(entry, d.Path)
		maps.Copy(entry, runtime.DeepCopyJSON(d.Fields))
		p.narrow(entry, conditions, p.Scopes[d.Name].Policy, found)
		others := slices.DeleteFunc(slices.Clone(entries), named(d.Name))
		entries = slices.Insert(others, slices.IndexFunc(others, named(d.From)), any(entry))
	}

	return entries
}

// derives reports whether the leader creates the entry of that name.
func (p *Publisher) derives(name any) bool {
	return slices.ContainsFunc(p.Derived, func(d Derived) bool { return name == d.Name })
}

// template returns the entries that the annotation keeps, and updates the annotation if they change: a new or
// changed entry comes from manifests that were applied since. Only the leader changes the annotation.
func (p *Publisher) template(
	object *unstructured.Unstructured, present []any, fields map[string]any,
) ([]any, error) {
	annotations := object.GetAnnotations()
	var kept []any
	if json.Unmarshal([]byte(annotations[templateAnnotation]), &kept) != nil {
		kept = nil // somebody wrote an unreadable value
	}
	if len(kept) > 0 && !p.leads() || len(present) == 0 {
		return kept, nil
	}

	fresh, news := len(kept) == 0, false
	for _, item := range present {
		entry, ok := item.(map[string]any)
		if _, known := p.Paths[pathOf(entry)]; !ok || !known && !fresh ||
			p.Recent != nil && entry["name"] == p.Recent.Name || p.derives(entry["name"]) {
			continue
		}
		bare := runtime.DeepCopyJSON(entry)
		unstructured.RemoveNestedField(bare, "clientConfig", "caBundle")
		switch at := slices.IndexFunc(kept, named(text(entry["name"]))); {
		case at < 0:
			kept, news = append(kept, bare), true
		case !equality.Semantic.DeepEqual(p.shipped(kept[at]), p.shipped(bare)):
			kept[at], news = bare, true
		}
	}

	if !news {
		return kept, nil
	}

	encoded, err := json.Marshal(kept)
	if err != nil {
		return nil, err
	}
	if annotations == nil {
		fields["/metadata/annotations"] = map[string]any{templateAnnotation: string(encoded)}
	} else {
		fields["/metadata/annotations/"+templateAnnotation] = string(encoded)
	}

	return kept, nil
}

// shipped returns an entry without what managers write into it.
func (p *Publisher) shipped(item any) map[string]any {
	entry, _ := item.(map[string]any)
	entry = maps.Clone(entry)
	path := pathOf(entry)
	if _, ok := p.Scopes[text(entry["name"])]; ok {
		delete(entry, "matchConditions")
		delete(entry, "failurePolicy")
	}
	entry["clientConfig"] = path
	return entry
}

// redirect sets the path of the client configuration of an entry.
func redirect(entry map[string]any, path string) {
	config, _ := entry["clientConfig"].(map[string]any)
	if address := text(config["url"]); address != "" {
		if u, err := url.Parse(address); err == nil {
			u.Path = path
			config["url"] = u.String()
		}
		return
	}
	if service, ok := config["service"].(map[string]any); ok {
		service["path"] = path
	}
}

func text(value any) string {
	text, _ := value.(string)
	return text
}
