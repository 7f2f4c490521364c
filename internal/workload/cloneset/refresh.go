package cloneset
