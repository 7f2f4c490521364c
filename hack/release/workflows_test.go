package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

type workflow struct {
	Permissions map[string]string `json:"permissions"`
	Jobs        map[string]struct {
		Permissions map[string]string `json:"permissions"`
		Timeout     int               `json:"timeout-minutes"`
		Steps       []struct {
			Uses string `json:"uses"`
			Run  string `json:"run"`
		} `json:"steps"`
	} `json:"jobs"`
}

// The workflows have no more rights than they need, name versions of all actions, and run what there is in the project.
func TestWorkflows(t *testing.T) {
	makefile := string(read(t, "../../Makefile"))
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) < 2 {
		t.Fatalf("%v, %q", err, files)
	}
	versioned := regexp.MustCompile(`^[a-z-]+/[a-z-]+@v\d+$`)
	target := regexp.MustCompile(`(?m)\bmake ([a-z-]+)`)
	script := regexp.MustCompile(`(?m)^\s*(\.?[a-z]+/[a-z./-]+)`)
	targets := 0
	for _, file := range files {
		text := string(read(t, file))
		w := workflow{}
		if err := yaml.Unmarshal([]byte(text), &w); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if w.Permissions == nil {
			t.Errorf("%s leaves the rights to the settings of the repository", file)
		}
		for right, value := range w.Permissions {
			if value != "read" {
				t.Errorf("%s gives every job the right %s: %s", file, right, value)
			}
		}
		if strings.Contains(text, "pull_request_target") {
			t.Errorf("%s runs changes of strangers with rights", file)
		}
		if strings.Contains(text, "write") != strings.HasSuffix(file, "release.yml") {
			t.Errorf("%s writes, or the release does not", file)
		}
		for name, job := range w.Jobs {
			if job.Timeout == 0 || len(job.Steps) == 0 {
				t.Errorf("%s: job %s has no limit of time, or no steps", file, name)
			}
			for _, step := range job.Steps {
				if (step.Uses == "") == (step.Run == "") || step.Uses != "" && !versioned.MatchString(step.Uses) {
					t.Errorf("%s: step %+v", file, step)
				}
				if strings.Contains(step.Run, "${{") {
					t.Errorf("%s: what others named is pasted into a shell: %s", file, step.Run)
				}
				for _, m := range target.FindAllStringSubmatch(step.Run, -1) {
					targets++
					if !strings.Contains(makefile, "\n"+m[1]+":") {
						t.Errorf("%s: there is no target %s", file, m[1])
					}
				}
				for _, m := range script.FindAllStringSubmatch(step.Run, -1) {
					if info, err := os.Stat(filepath.Join("../..", m[1])); err != nil || info.Mode()&0o111 == 0 {
						t.Errorf("%s: %s does not run: %v", file, m[1], err)
					}
				}
			}
		}
	}
	if targets < 2 {
		t.Errorf("%d targets of make", targets)
	}
}
