// Package releases checks the notes of the next release.
package releases

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/afloat-project/afloat/internal/platform/features"
)

var update = flag.Bool("update", false, "write the defaults of feature gates to gates.txt, after a release")

// defaults reads gates such as A=true and returns off or on for each.
func defaults(t *testing.T, list string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for gate := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' || r == '\n' }) {
		name, value, _ := strings.Cut(gate, "=")
		all[name] = map[string]string{"true": "on", "false": "off"}[value]
		if all[name] == "" {
			t.Fatalf("what is %q?", gate)
		}
	}
	return all
}

var row = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\w+) \\| (\\w+) \\| ?(.*?) ?\\|$")

// missing says what notes do not tell, or tell wrongly, of the gates whose defaults differ. A gate that is
// new and off changes nothing.
func missing(notes string, before, now map[string]string) (wrong []string) {
	_, section, _ := strings.Cut(notes, "## Changed defaults of feature gates\n")
	section, _, _ = strings.Cut(section, "\n## ")
	told := map[string][]string{}
	for _, cells := range row.FindAllStringSubmatch(section, -1) {
		told[cells[1]] = cells[2:]
	}
	value := func(gates map[string]string, name string) string {
		if v := gates[name]; v != "" {
			return v
		}
		return "none"
	}
	for _, gates := range []map[string]string{before, now} {
		for name := range gates {
			from, to := value(before, name), value(now, name)
			switch cells := told[name]; {
			case from == to || from == "none" && to == "off":
				continue
			case cells == nil:
				wrong = append(wrong, fmt.Sprintf("%s went from %s to %s, and the notes do not say so", name, from, to))
			case cells[0] != from || cells[1] != to:
				wrong = append(wrong, fmt.Sprintf("%s went from %s to %s, and the notes say from %s to %s", name, from, to, cells[0], cells[1]))
			case to == "on" && cells[2] == "":
				wrong = append(wrong, fmt.Sprintf("%s is on now, and the notes do not say which rights and webhooks it needs", name))
			}
		}
	}
	for name := range told {
		from, to := value(before, name), value(now, name)
		if from == to || from == "none" && to == "off" {
			wrong = append(wrong, fmt.Sprintf("the notes tell of %s, which is %s as before", name, to))
		}
	}
	slices.Sort(wrong)
	return slices.Compact(wrong)
}

// OPS-115: the notes list each gate whose default differs from the release before, and of each that is turned
// on what it needs.
func TestNotesListChangedDefaults(t *testing.T) {
	notes, err := os.ReadFile("unreleased.md")
	if err != nil {
		t.Fatal(err)
	}
	gates, err := features.Parse("")
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("gates.txt", []byte(strings.ReplaceAll(gates.String(), ",", "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	recorded, err := os.ReadFile("gates.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range missing(string(notes), defaults(t, string(recorded)), defaults(t, gates.String())) {
		t.Error(wrong)
	}
}

// OPS-115: what the check above would say.
func TestWhatNotesMustSay(t *testing.T) {
	before := defaults(t, "A=false\nB=true\nC=false\nGone=true\n")
	now := defaults(t, "A=true,B=true,C=false,New=true,Silent=false")
	const head = "## Changed defaults of feature gates\n\n| gate | before | now | needs |\n|---|---|---|---|\n"
	good := head + "| `A` | off | on | nothing |\n| `New` | none | on | a webhook that fails closed |\n| `Gone` | on | none | |\n"
	for want, notes := range map[string]string{
		"[]": good,
		"[A is on now, and the notes do not say which rights and webhooks it needs]": strings.Replace(good, "| nothing |", "| |", 1),
		"[Gone went from on to none, and the notes do not say so]":                   strings.Replace(good, "| `Gone` | on | none | |\n", "", 1),
		"[A went from off to on, and the notes say from on to off]":                  strings.Replace(good, "off | on", "on | off", 1),
		"[the notes tell of C, which is off as before]":                              good + "| `C` | off | on | nothing |\n",
		"[New went from none to on, and the notes do not say so]": strings.Replace(good, "| `New` | none | on | a webhook that fails closed |\n", "", 1) +
			"\n## Others\n\n| `New` | none | on | nothing |\n",
	} {
		if got := fmt.Sprint(missing(notes, before, now)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// The page of differences names each gate whose default is another than that of OpenKruise 1.9, so that
// nobody who changes over is surprised.
func TestTheManualNamesGatesThatDifferFromOpenKruise(t *testing.T) {
	there := map[string]bool{}
	for name := range strings.FieldsSeq("PodWebhook KruiseDaemon DaemonWatchingPod WorkloadSpread PodUnavailableBudgetDeleteGate InPlaceUpdateEnvFromMetadata " +
		"StatefulSetAutoDeletePVC PodProbeMarkerGate PodIndexLabel") {
		there[name] = true
	}
	page, err := os.ReadFile("../operate/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Defaults\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for name, spec := range features.Known() {
		if spec.Default != there[string(name)] && !strings.Contains(section, "`"+string(name)+"`") {
			t.Errorf("%s is %t here, and the page does not say so", name, spec.Default)
		}
	}
}
