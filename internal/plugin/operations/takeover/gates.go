package takeover

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"

	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// theirGates is a table of the feature gates in the releases of OpenKruise.
//
//go:embed gates.txt
var theirGates string

// gateTable is the parsed table: the mark in each release's column for each gate, with gates in the table's
// order.
type gateTable struct {
	releases []string
	gates    []featuregate.Feature
	marks    map[featuregate.Feature]map[string]string
}

func readGates() gateTable {
	table := gateTable{marks: map[featuregate.Feature]map[string]string{}}
	for line := range strings.Lines(theirGates) {
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "#"):
		case table.releases == nil:
			table.releases = words[1:]
		default:
			gate := featuregate.Feature(words[0])
			table.gates = append(table.gates, gate)
			table.marks[gate] = map[string]string{}
			for i, release := range table.releases {
				table.marks[gate][release] = words[i+1]
			}
		}
	}

	return table
}

// reading is how the flags of another installation are interpreted.
type reading struct {
	table gateTable
	// releases are the columns of the table that may apply, and told explains how they were found.
	releases []string
	told     string
	// used are those gates of needUse that are in use.
	used map[featuregate.Feature]bool
}

// tagOf returns the tag of an image, or nothing if it has none.
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") {
		return image[at+1:]
	}
	return ""
}

// newReading finds the release of an installation by the tag of the running image, because labels and
// versions of its chart are unreliable. If the tag is no version, it goes by the definitions as far as they
// differ.
func newReading(image string, definitions []*unstructured.Unstructured) *reading {
	r := &reading{table: readGates()}
	first := version.MustParseGeneric(r.table.releases[0])
	if tag, err := version.ParseGeneric(tagOf(image)); err == nil && tag.Major() == first.Major() {
		for _, release := range r.table.releases {
			if tag.AtLeast(version.MustParseGeneric(release)) {
				r.releases = []string{release}
			}
		}
		switch last := version.MustParseGeneric(r.table.releases[len(r.table.releases)-1]); {
		case len(r.releases) == 0:
			r.releases, r.told = r.table.releases[:1],
				fmt.Sprintf("like those of %s, because %s is older than what is known", first, tag)
		case tag.Minor() > last.Minor():
			r.told = fmt.Sprintf("like those of %s, because %s is newer than what is known", last, tag)
		default:
			r.told = "as " + tag.String() + " has them, by the tag of its image"
		}
		return r
	}

	for _, release := range r.table.releases {
		if at := version.MustParseGeneric(release); mayBe(at, definitions) {
			r.releases = append(r.releases, release)
		}
	}

	if len(r.releases) == 0 {
		r.releases = r.table.releases
	}

	r.told = fmt.Sprintf("as those of OpenKruise like %s, because image %s does not say which one it is",
		strings.Join(r.releases, ", "), image)
	return r
}

// mayBe reports whether a release has such definitions.
func mayBe(release *version.Version, definitions []*unstructured.Unstructured) bool {
	if len(definitions) == 0 {
		return true
	}

	lists, beta := false, false
	for _, definition := range definitions {
		switch definition.GetName() {
		case "imagelistpulljobs.apps.kruise.io":
			lists = true
		case "daemonsets.apps.kruise.io":
			beta = slices.ContainsFunc(installation.Maps(definition.Object, "spec", "versions"),
				func(v map[string]any) bool { return v["name"] == "v1beta1" })
		}
	}

	return lists == release.AtLeast(version.MustParseGeneric("1.5.0")) &&
		beta == release.AtLeast(version.MustParseGeneric("1.9.0"))
}

// needUse are gates that change how certificates, permissions or storage work, each with what is true if it
// is not in use. A gate that is named is carried over. A gate that is on without being named, by the switch
// of a stage or because an older release had no gate for it, is turned on only if it is in use.
var needUse = map[featuregate.Feature]string{
	features.EnableExternalCerts:                   "the Secret with certificates is not that of somebody else",
	features.ResourceDistributionGate:              "there is no ResourceDistribution",
	features.StatefulSetAutoResizePVCGate:          "no StatefulSet says that its claims grow",
	features.DeletionProtectionForCRDCascadingGate: "no definition asks for it",
}

// usedGates returns those gates of needUse that are in use.
func (t *takeover) usedGates(ctx context.Context) (map[featuregate.Feature]bool, error) {
	used := map[featuregate.Feature]bool{}
	secret, err := installation.Get(ctx, t.client, installation.Secrets, t.choice.Namespace,
		installation.Secret)
	if secret != nil && err == nil {
		data, _, _ := unstructured.NestedMap(secret.Object, "data")
		used[features.EnableExternalCerts] = data["ca.crt"] != nil && data["tls.crt"] != nil &&
			data["ca-cert.pem"] == nil
	}

	return used, installation.Each(ctx, t.client, installation.Definitions,
		func(definition *unstructured.Unstructured) error {
			if definition.GetLabels()["policy.kruise.io/delete-protection"] == "Cascading" {
				used[features.DeletionProtectionForCRDCascadingGate] = true
			}

			var gate featuregate.Feature
			uses := func(*unstructured.Unstructured) bool { return true }
			switch definition.GetName() {
			case "resourcedistributions.apps.kruise.io":
				gate = features.ResourceDistributionGate
			case "statefulsets.apps.kruise.io":
				gate, uses = features.StatefulSetAutoResizePVCGate,
					func(set *unstructured.Unstructured) bool {
						return installation.Text(set.Object, "spec", "volumeClaimUpdateStrategy",
							"type") == "OnPodRollingUpdate"
					}

			default:
				return nil
			}
			return installation.Each(ctx, t.client, installation.StoredKind(definition),
				func(object *unstructured.Unstructured) error {
					used[gate] = used[gate] || uses(object)
					return nil
				})
		})
}

// daemonGates are the gates that a node daemon reads.
var daemonGates = []featuregate.Feature{features.KruiseDaemon, features.DaemonWatchingPod,
	features.InPlaceUpdateEnvFromMetadata, features.PodProbeMarkerGate}

// gates translates the list of feature gates of another installation into one that gives the gates of the
// project the same values, and explains how it was read: named gates keep their values, switches of stages
// become what they mean there, and defaults of that release are added where they differ. The gates in of are
// those that matter to the receiver of the list.
func (r *reading) gates(list string, of []featuregate.Feature) (carried string, notes []string) {
	var entries []string
	named, stages := map[featuregate.Feature]bool{}, map[string]bool{}
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		name, value, _ := strings.Cut(item, "=")
		wish, wrong := strconv.ParseBool(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); (name == "AllAlpha" || name == "AllBeta") && wrong == nil {
			stages[name] = wish
			continue
		}
		if _, err := features.Parse(item); err != nil {
			notes = append(notes, fmt.Sprintf("feature gate %s is not carried over: %v", item, err))
			continue
		}
		if gate, ok := features.Aliases()[name]; ok {
			name = string(gate)
		}
		named[featuregate.Feature(name)] = wish
		entries = append(entries, item)
	}

	ours := features.Known()
	meant, unused, kept, unclear := map[string][]string{}, []string{}, []string{}, []string{}
	for _, gate := range r.table.gates {
		spec, known := ours[gate]
		if _, is := named[gate]; is || !known || !slices.Contains(of, gate) {
			continue
		}

		values, by := map[bool]bool{}, ""
		for _, release := range r.releases {
			value, stage := r.value(gate, release, stages)
			if value, by = r.forced(gate, release, value, named, stages), stage; value &&
				needUse[gate] != "" {
				if value = r.used[gate]; !value && !slices.Contains(unused, string(gate)) {
					unused = append(unused, string(gate))
					notes = append(notes,
						fmt.Sprintf("feature gate %s is on there without being named, and is not turned on, because %s: "+
							"name it if you want it", gate, needUse[gate]))
				}
			}
			values[value] = true
		}

		switch entry := fmt.Sprintf("%s=%v", gate, values[true]); {
		case len(values) > 1:
			unclear = append(unclear, string(gate))
		case by != "" && values[stages[by]]:
			meant[by] = append(meant[by], string(gate))
			if values[true] != spec.Default {
				entries = append(entries, entry)
			}
		case values[true] != spec.Default:
			entries = append(entries, entry)
			kept = append(kept, entry)
		}
	}

	if len(stages)+len(kept)+len(unclear) > 0 {
		notes = append(notes, "feature gates are read "+r.told)
	}

	for _, stage := range slices.Sorted(maps.Keys(stages)) {
		notes = append(notes,
			fmt.Sprintf("%s=%v means there: %s", stage, stages[stage], orNone(meant[stage])))
	}

	if len(kept) > 0 {
		notes = append(notes,
			"feature gates that nobody named stay as they are there, and differ from the defaults of Afloat: "+
				strings.Join(kept, ", "))
	}

	if len(unclear) > 0 {
		notes = append(notes,
			"feature gates of which the releases differ, so that they get the defaults of Afloat: "+
				strings.Join(unclear, ", ")+
				"; name those that you need in the other installation, or in --manifests")
	}

	return strings.Join(entries, ","), notes
}

// value returns the value of an unnamed gate in a release, before other gates force it, and the stage whose
// switch set it.
func (r *reading) value(gate featuregate.Feature, release string,
	stages map[string]bool) (value bool, stage string) {
	mark := r.table.marks[gate][release]
	switch mark[0] {
	case '!', '.':
		return mark == "!", ""
	case 'A':
		stage = "AllAlpha"
	default:
		stage = "AllBeta"
	}
	if value, is := stages[stage]; is {
		return value, stage
	}

	return strings.HasSuffix(mark, "+"), ""
}

// forced returns the value of a gate after other gates have forced it, as far as the project's gates do not
// force the same.
func (r *reading) forced(gate featuregate.Feature, release string, value bool,
	named map[featuregate.Feature]bool, stages map[string]bool) bool {
	at := func(other featuregate.Feature) bool {
		if value, is := named[other]; is {
			return value
		}
		value, _ := r.value(other, release, stages)
		return value
	}

	old := version.MustParseGeneric(release).LessThan(version.MustParseGeneric("1.6.0"))
	switch {
	case gate == features.ResourcesDeletionProtection && old && !at(features.PodWebhook):
		return false
	case gate == features.DeletionProtectionForCRDCascadingGate && !at(features.ResourcesDeletionProtection):
		return false
	case gate == features.ImagePullJobGate && at(features.KruiseDaemon):
		return value || r.table.marks[gate][release] != "!" &&
			(at(features.PreDownloadImageForInPlaceUpdate) || at(features.PreDownloadImageForDaemonSetUpdate))
	}

	return value
}
