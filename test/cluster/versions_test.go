package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNestedModulesRequireTheVersionsOfTheTable(t *testing.T) {
	for _, v := range kubernetesVersions {
		for _, c := range components(v) {
			if c.requires == "" {
				continue
			}
			b, err := os.ReadFile(filepath.Join(c.module, "go.mod"))
			if err != nil {
				t.Error(err)
				continue
			}
			if !strings.Contains(string(b), c.requires+" "+c.version) {
				t.Errorf("%s/go.mod does not require %s %s", c.module, c.requires, c.version)
			}
		}
	}
}

// The programs of all versions are made from one source; the folder of that source is no package of this
// module.
func TestKubernetesVersionsShareOneSource(t *testing.T) {
	for _, v := range kubernetesVersions {
		c := kubernetesComponent(v)
		if target, err := os.Readlink(filepath.Join(c.module, "main.go")); err != nil || target != "../main.go" || c.tags == "" {
			t.Errorf("%s: %s, %v", v, target, err)
		}
	}
}

func TestAnUnknownVersionIsRefusedWithTheKnownOnes(t *testing.T) {
	err := checkVersion("v1.31.0")
	if err == nil || !strings.Contains(err.Error(), "v1.33.13") {
		t.Errorf("error = %v", err)
	}
	if err := checkVersion(defaultVersion); err != nil {
		t.Error(err)
	}
}
