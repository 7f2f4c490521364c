package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func (d *doctor) checkDefinitions(ctx context.Context) error {
	const check = "definitions"
	missing := map[string]*unstructured.Unstructured{}
	for _, object := range d.manifests {
		if object.GetKind() == installation.Definitions.Kind {
			missing[object.GetName()] = object
		}
	}

	compared := 0
	if err := d.definitions(ctx, func(live *unstructured.Unstructured) {
		wanted, calls := missing[live.GetName()],
			installation.Text(live.Object, "spec", "conversion", "strategy") == "Webhook"
		delete(missing, live.GetName())
		switch {
		case wanted != nil:
			compared++
			d.compare(ctx, live, wanted)
		case calls:
			d.add(check, Problem, installation.Of(live),
				"nobody converts it: its objects cannot be read in all versions, and new replicas do not become ready",
				"set spec.conversion to None, if its kind is not in use")
		}
	}); err != nil {
		return err
	}

	for _, name := range sorted(missing) {
		d.add(check, Warning, "CustomResourceDefinition "+name, "it is not there, so its kind is not served",
			"apply the manifests again")
	}

	d.add(check, OK, "", wording.Count(compared, "definition")+" compared with those of this release", "")
	return nil
}

// setting returns a clause about the objects that set fields which the definition of this release would drop.
// It looks at the stored version only.
func (d *doctor) setting(ctx context.Context, live *unstructured.Unstructured, version string,
	fields []string) string {
	kind := installation.StoredKind(live)
	if kind.Version != version {
		return ""
	}

	setting, err := installation.Setting(ctx, d.client, kind, fields)
	if err != nil {
		return ""
	}

	set := slices.DeleteFunc(slices.Clone(fields),
		func(field string) bool { return len(setting[field]) == 0 })
	if len(set) == 0 {
		return ", set in no object"
	}

	return ", and applying this release's would drop " + installation.Told(set, setting)
}

// compare reports how a definition differs from that of this release.
func (d *doctor) compare(ctx context.Context, live, wanted *unstructured.Unstructured) {
	const check = "definitions"
	of := installation.Of(live)
	has, want := installation.Versions(live), installation.Versions(wanted)
	for _, name := range sorted(want) {
		if has[name] == nil {
			d.add(check, Problem, of, name+" is not served", "apply the manifests again")
			continue
		}

		if has[name]["storage"] != want[name]["storage"] {
			d.add(check, Warning, of,
				fmt.Sprintf("%s: storage is %v, and the manifests say %v", name, has[name]["storage"],
					want[name]["storage"]),
				"apply the manifests again")
		}

		is, should := installation.FieldsOf(has[name]), installation.FieldsOf(want[name])
		if lacks := is.Lacks(should); len(lacks) > 0 {
			d.add(check, Problem, of,
				fmt.Sprintf("%s is older than this release: it lacks %s, and the API server drops them", name,
					some(lacks)),
				"apply the manifests again")
		}
		if more := should.Lacks(is); len(more) > 0 {
			d.add(check, Warning, of,
				fmt.Sprintf("%s is newer than this release, or another project's: it also has %s%s", name,
					some(more), d.setting(ctx, live, name, more)),
				"use a kubectl plugin of the release that is installed")
		}
	}

	stored, _, _ := unstructured.NestedStringSlice(live.Object, "status", "storedVersions")
	for _, name := range stored {
		if has[name] == nil {
			d.add(check, Problem, of, "objects may be stored in "+name+", which it does not have",
				"add the version, or store the objects again")
		}
	}

	if is, should := installation.Text(live.Object, "spec", "conversion", "strategy"),
		installation.Text(wanted.Object, "spec", "conversion", "strategy"); should == "Webhook" &&
		is != should {
		d.add(check, Problem, of,
			"it is not converted: what is written in one version loses fields in the other",
			"apply the manifests again")
	}
}

// some joins the first items of a list.
func some(items []string) string {
	if len(items) > 5 {
		return fmt.Sprintf("%s and %d more", strings.Join(items[:5], ", "), len(items)-5)
	}
	return strings.Join(items, ", ")
}
