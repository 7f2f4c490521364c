package takeover

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// lookAtKinds counts the objects of each definition, and compares versions and fields.
func (t *takeover) lookAtKinds(ctx context.Context, s *seen) error {
	served := t.served()
	var names []string
	if err := installation.Each(ctx, t.client, installation.Definitions,
		func(definition *unstructured.Unstructured) error {
			if !installation.OfProject(definition) {
				return nil
			}

			ours := served[definition.GetName()]
			kind := kindInUse{definition: definition.DeepCopy(),
				name: installation.Text(definition.Object, "spec", "names", "kind"), served: ours != nil}
			err := t.count(ctx, &kind)
			if err != nil && !s.resumed {
				return err
			}

			s.kinds = append(s.kinds, kind)
			if kind.objects > 0 {
				names = append(names, fmt.Sprintf("%d %s", kind.objects, kind.name))
			}

			if ours == nil {
				if kind.objects > 0 {
					s.refusals = append(s.refusals,
						fmt.Sprintf("%s (%s)", kind.name, wording.Count(int(kind.objects), "object")))
				}
				return nil
			}

			s.against = append(s.against, missingVersions(definition, ours)...)
			return t.compareFields(ctx, s, kind.definition, ours)
		}); err != nil {
		return err
	}

	t.say("objects: %s", orNone(names))
	return nil
}

// missingVersions describes the versions in which objects may be stored and that wanted does not have.
func missingVersions(definition, wanted *unstructured.Unstructured) []string {
	stored, _, _ := unstructured.NestedStringSlice(definition.Object, "status", "storedVersions")
	var missing []string
	for _, version := range stored {
		if !slices.ContainsFunc(installation.Maps(wanted.Object, "spec", "versions"),
			func(v map[string]any) bool { return v["name"] == version }) {
			missing = append(missing,
				fmt.Sprintf("%s may be stored in %s, which the other definition does not have",
					definition.GetName(), version))
		}
	}
	return missing
}

// compareFields finds the fields that a kind loses with its definition: objects that set one would lose it at
// their next write. It skips the status, which the manager writes again, and looks only at the stored
// version, because objects of other versions cannot set such fields.
func (t *takeover) compareFields(ctx context.Context, s *seen,
	definition, ours *unstructured.Unstructured) error {
	kind := installation.StoredKind(definition)
	live, wanted := installation.Versions(definition)[kind.Version], installation.Versions(ours)[kind.Version]
	if s.resumed || live == nil || wanted == nil {
		return nil
	}

	lost := slices.DeleteFunc(installation.FieldsOf(wanted).Lacks(installation.FieldsOf(live)),
		func(path string) bool {
			return path == "status" || strings.HasPrefix(path, "status.")
		})

	if len(lost) == 0 {
		return nil
	}

	setting, err := installation.Setting(ctx, t.client, kind, lost)
	if err != nil {
		return err
	}

	var set []string
	unset := slices.DeleteFunc(lost, func(path string) bool {
		if len(setting[path]) > 0 {
			set = append(set, path)
		}
		return len(setting[path]) > 0
	})

	if len(set) > 0 {
		s.against = append(s.against,
			fmt.Sprintf("%s %s has fields that Afloat does not know, and that objects would lose: %s",
				definition.GetName(), kind.Version,
				most(strings.Split(installation.Told(set, setting), "; "))))
	}

	if len(unset) > 0 {
		t.say("%s %s has fields that Afloat does not know, and that no object has set: %s",
			definition.GetName(), kind.Version, most(unset))
	}

	return nil
}

// count sets the number of objects of a kind.
func (t *takeover) count(ctx context.Context, kind *kindInUse) error {
	of := installation.StoredKind(kind.definition)
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(of.GroupVersion().WithKind(of.Kind + "List"))
	if err := t.client.List(ctx, list, client.Limit(1)); err != nil {
		return fmt.Errorf("counting %s: %w", kind.definition.GetName(), err)
	}
	kind.objects = int64(len(list.Items))
	if more := list.GetRemainingItemCount(); more != nil {
		kind.objects += *more
	}
	return nil
}

// lookAtEntries finds entries of the webhook configurations that the manifests do not have.
func (t *takeover) lookAtEntries(ctx context.Context, s *seen) error {
	paths := map[string]bool{}
	names := slices.Clone(installation.DerivedEntries)
	for _, kind := range []string{installation.MutatingKind.Kind, installation.ValidatingKind.Kind} {
		for _, object := range t.manifests {
			if object.GetKind() != kind {
				continue
			}
			for _, entry := range installation.Entries(object) {
				names = append(names, installation.Text(entry, "name"))
				paths[installation.Text(entry, "clientConfig", "service", "path")] = true
			}
		}
	}

	for kind, name := range map[schema.GroupVersionKind]string{
		installation.MutatingKind:   installation.Mutating,
		installation.ValidatingKind: installation.Validating} {
		configuration, err := installation.Get(ctx, t.client, kind, "", name)
		if err != nil {
			return err
		}
		for _, entry := range installation.Entries(configuration) {
			name := installation.Text(entry, "name")
			if slices.Contains(names, name) ||
				paths[installation.Text(entry, "clientConfig", "service", "path")] {
				continue
			}
			switch used, known := s.asked(entry); {
			case !known:
				s.refusals = append(s.refusals, "webhook "+name+": it is about what Afloat does not know")
			case len(used) == 0:
				s.dropped = append(s.dropped, name)
			}
		}
	}

	slices.Sort(s.dropped)
	slices.Sort(s.refusals)
	if len(s.dropped) > 0 {
		t.say("webhooks that go, because nobody uses their kinds or Afloat's own do the same: %s",
			strings.Join(s.dropped, ", "))
	}

	return nil
}

// asked returns the kinds that an entry is about, that are in use and that the project does not serve. It
// returns false if the entry is also about other kinds than those of the project.
func (s *seen) asked(entry map[string]any) (used []string, known bool) {
	known = true
	for _, rule := range installation.Maps(entry, "rules") {
		for _, group := range texts(rule["apiGroups"]) {
			for _, resource := range texts(rule["resources"]) {
				resource, _, _ = strings.Cut(resource, "/")
				at := slices.IndexFunc(s.kinds,
					func(k kindInUse) bool { return k.definition.GetName() == resource+"."+group })
				switch {
				case group != "apps.kruise.io" && group != "policy.kruise.io":
					known = false
				case at >= 0 && !s.kinds[at].served && s.kinds[at].objects > 0:
					used = append(used, s.kinds[at].name)
				}
			}
		}
	}

	return used, known
}
