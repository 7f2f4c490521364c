package resourcedistribution_test

import (
	"strings"
	"testing"

	"github.com/afloat-project/afloat/internal/kinds/resourcedistribution"
	build "github.com/afloat-project/afloat/internal/kinds/resourcedistribution/resourcedistributiontest"
)

// What is told of a resource that cannot be read has nothing of its content: statuses and events are read by more people than Secrets.
func TestFaultsTellNoContent(t *testing.T) {
	for _, text := range []string{
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"pin":867530912}}`,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":{"pin":867530912}}`,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":867530912}`,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":{"pin":"867530912!"}}`,
	} {
		_, err := resourcedistribution.Read(build.Distribution("a", build.Resource(text)))
		if err == nil || strings.Contains(err.Error(), "867530912") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
