package sidecarset

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// What is merged is written in one way, without nulls, so that two SidecarSets that merge into one annotation
// come to the same a second time; a value that is set into nothing stays as it was written (SS-107, SS-150).
func TestMergedAnnotationsAreWrittenInOneWay(t *testing.T) {
	for name, tt := range map[string]struct {
		before, first, second, want string
	}{
		"into nothing":             {"", `{"x": null}`, `{"z":null}`, `{"x": null}`},
		"a null, then another key": {"", `{"x":null,"w":2}`, `{"w":null,"y":1}`, `{"y":1}`},
		"a null deeper":            {"", `{"a":{"x":null}}`, `{"a":{"y":1}}`, `{"a":{"y":1}}`},
		"set and taken away":       {`{"b":2, "a":1}`, `{"x":1}`, `{"x":null}`, `{"a":1,"b":2}`},
		"nulls of lists stay":      {`{"l":[null,1]}`, `{"x":1}`, `{"y":1}`, `{"l":[null,1],"x":1,"y":1}`},
		"many keys in one order": {`{"z":0}`, `{"f":1,"e":1,"d":1}`, `{"c":1,"b":1,"a":12345678901234567890}`,
			`{"a":12345678901234567890,"b":1,"c":1,"d":1,"e":1,"f":1,"z":0}`},
		"what is there stays as it is there": {`{"b":2, "a":1}`, `{"a":1}`, `{"b":2}`, `{"b":2, "a":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			pass := func(value string) string {
				annotations := map[string]string{"k": value}
				if value == "" {
					annotations = nil
				}
				for _, text := range []string{tt.first, tt.second} {
					changed, err := PatchMetadata(annotations, []appsv1beta1.SidecarSetPatchPodMetadata{
						{PatchPolicy: appsv1beta1.SidecarSetMergePatchJSONPatchPolicy, Annotations: map[string]string{"k": text}}})
					if err != nil {
						t.Fatal(err)
					}
					if after, ok := changed["k"]; ok {
						annotations = map[string]string{"k": after}
					}
				}
				return annotations["k"]
			}
			once := pass(tt.before)
			if diff := cmp.Diff([]string{tt.want, tt.want}, []string{once, pass(once)}); diff != "" {
				t.Errorf("annotation after one pass and after two (-want +got):\n%s", diff)
			}
		})
	}
}
